"""The radio of a round, end to end. Read this file first.

          base station                             devices                              air

    own update, memory
          │
          ▼
      broadcast ─────── announced ──────────►  (codebook, slots to send)
                                                                              sound: gains, power control
                                               messages [devices, params]  ◄── csi ──┘
                                                    │
                                                    ▼
                                                  encode ──── signal ───────►  carry: gains, sum, noise
      decode ◄───────────────────────── received ────────────────────────────────────┘
          │ Counts | Vectors | Mean | Vote
          ▼
      aggregate ──► update ──► server step (`fl/round.py`)

`communicate` is that drawing. Each scheme writes three verbs (`uplinks/`), each channel two (`channel/`); what a round took
is metered from what was sent (`uplinks/meter.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.aggregation import Rule
from aircomp.aggregation.readout import Readout
from aircomp.channel.base import AtDevices, Channel, Csi, Direct
from aircomp.channel.signal import Louder
from aircomp.common import rng as rngs
from aircomp.common.checks import check_type
from aircomp.uplinks.base import Announced, Memory, Sent, Uplink, check_devices
from aircomp.uplinks.meter import Air, amplitude_at_cap, measure
from aircomp.uplinks.outputs import Output, aggregate_output, check_rule


@dataclass(frozen=True)
class Link:
    """What stays the same over all rounds: scheme, channel, rule, and the seed that everything random derives from."""

    uplink: Uplink
    channel: Channel
    rule: str | Rule = "mean"
    keep: float = 0.8
    """Share of the mass that the trimmed means keep."""
    readout: Readout = "auto"
    """What the mean is formed of."""
    seed: int = 0
    cap: bool = False
    """Whether the nominal energy is the most that a device spends in a round, in place of what devices spend on average."""

    def __post_init__(self) -> None:
        check_rule(self.uplink.offers, self.rule, self.readout)

    @property
    def way(self) -> Channel:
        """What the signals really go through: bounds that are told the truth have no radio between."""
        return self.channel if self.uplink.uses_radio else Direct()

    def rng(self, purpose: str, index: int) -> torch.Generator:
        """Return the generator of a purpose in a round."""
        return rngs.generator(self.seed, purpose, index)


@dataclass(frozen=True)
class Exchange:
    """What went over the radio in a round."""

    base_update: Float[Tensor, " params"]
    messages: Float[Tensor, "devices params"]
    announced: Announced
    sent: Sent
    output: Output
    update: Float[Tensor, " params"]
    """The aggregate."""
    memory: Memory
    """What the uplink remembers for the next round."""
    air: Air
    """What the round took."""


def communicate(
    link: Link,
    base_update: Float[Tensor, " params"],
    messages: Float[Tensor, "devices params"],
    memory: Memory,
    index: int,
) -> Exchange:
    """Send the messages of a round's devices to the base station.

    Args:
        link: Scheme, channel and rule.
        base_update: The base station's own update.
        messages: What each transmitting device wants to say.
        memory: What the uplink remembers of the rounds before.
        index: The round, from 0.
    """
    announced = broadcast(link, base_update, memory, index)
    csi = sound(link, len(messages), announced, index)
    sent = encode(link, messages, announced, csi, index)
    received = carry(link, sent, csi, index)
    output, memory = decode(link, received, replace(announced, agreed=sent.agreed), csi)
    update = aggregate(link, output)
    air = measure(link.uplink, announced, sent, csi)
    return Exchange(base_update, messages, announced, sent, output, update, memory, air)


def broadcast(link: Link, base_update: Float[Tensor, " params"], memory: Memory, index: int) -> Announced:
    """Let the base station announce the round."""
    announced = link.uplink.broadcast(base_update, memory, rng=link.rng("codebook", index))
    check_type("what the uplink's broadcast returned", announced, Announced, "an aircomp.uplinks.base.Announced")
    return announced


def sound(link: Link, num_devices: int, announced: Announced, index: int) -> Csi:
    """Draw the round's channel state, the same for every scheme."""
    return link.way.sound(num_devices, announced.num_uses, rng=link.rng("fading", index))


def encode(link: Link, messages: Float[Tensor, "devices params"], announced: Announced, csi: Csi, index: int) -> Sent:
    """Turn every device's message into what it sends."""
    check_devices(link.uplink, len(messages))
    # what is random is drawn again as it was, where devices send a second time under a cap
    return within_cap(
        link,
        lambda known: link.uplink.encode(messages, announced, known, rng=link.rng("encode", index)),
        announced,
        csi,
    )


def within_cap(link: Link, send: Callable[[AtDevices], Sent], announced: Announced, csi: Csi) -> Sent:
    """Return what devices send, under a cap with the amplitude that makes use of it: rates follow how loud devices may be."""
    sent = send(csi.at_devices)
    check_type("what the uplink's encode returned", sent, Sent, "an aircomp.uplinks.base.Sent")
    if not link.cap or link.way is not link.channel:
        return sent
    amplitude = amplitude_at_cap(announced, sent, csi)
    return replace(send(csi.at_devices.louder(amplitude)), amplitude=amplitude)


def carry(link: Link, sent: Sent, csi: Csi, index: int) -> Any:
    """Let the air add it all up; what a cap made louder, the base station divides by."""
    if sent.amplitude is None:
        return link.way.carry(sent.signal, csi, rng=link.rng("noise", index))
    return link.way.carry(Louder(sent.signal, sent.amplitude), csi, rng=link.rng("noise", index)) / sent.amplitude


def decode(link: Link, received: Any, announced: Announced, csi: Csi) -> tuple[Output, Memory]:
    """Recover what the uplink offers."""
    output, memory = link.uplink.decode(received, announced, csi.at_receiver)
    check_type("what the uplink's decode returned", output, link.uplink.offers, f"{link.uplink.offers.__name__}")
    return output, memory


def aggregate(link: Link, output: Output) -> Float[Tensor, " params"]:
    """Form one update of it."""
    return aggregate_output(output, link.rule, keep=link.keep, readout=link.readout)
