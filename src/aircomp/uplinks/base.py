"""The one interface of every uplink scheme, and what its verbs pass on; `aircomp.link` puts them together.

A scheme never sees the truth on its receiving side: `decode` gets what the antennas heard, what was announced, and what the
receiver knows of the channel. `diagnose` compares both sides afterwards, for metrics only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Signal, slot_blocks
from aircomp.common.snr import SnrReference
from aircomp.errors import ArtefactError, ConfigError
from aircomp.measure.metrics import vector_nmse
from aircomp.uplinks.outputs import Mean, Output

Memory = Mapping[str, Tensor]
"""What an uplink keeps from round to round, by name: part of the run's state, saved in its checkpoints."""

NOISE_VAR = "noise_var"
"""What links remember whose next round depends on it: the noise variance of a channel use, as they estimated it last."""


@dataclass(frozen=True)
class UplinkContext:
    """What an uplink is made for."""

    slot_layers: Int[Tensor, " slots"] | None = None
    """The parameter tensor of each fragment of the update, for decoders that use it."""
    seed: int = 0
    """What a random-access codebook is drawn from."""
    device: str | torch.device = "cpu"
    include_base_station: bool = False
    """Whether the base station's own update joins the aggregate."""
    snr_reference: SnrReference = "round"
    """What the receiver knows of its noise: one variance over the round, or under `slot` one for each slot."""
    block_uses: int = 0
    """Channel uses of a coherence block, where gains differ from block to block; 0: gains of one."""
    access_points: int = 1
    """Places over which the base station's antennas are spread."""

    def parameter_layers(self, num_params: int, fragment_length: int) -> Int[Tensor, " params"]:
        """Return the parameter tensor of every parameter, as its fragment has it; one for all where nobody told."""
        if self.slot_layers is None:
            return torch.zeros(num_params, dtype=torch.int64)
        return self.slot_layers.repeat_interleave(fragment_length)[:num_params]


@dataclass(frozen=True)
class Announced:
    """What the base station sends to all devices before the round, and what it keeps to itself."""

    num_params: int
    num_uses: int
    """Channel uses of the round as its signal counts them; the meter counts a complex one as two real ones."""
    downlink: Mapping[str, Tensor] = field(default_factory=dict)
    """What devices are told, by name; the meter counts its bits."""
    kept: Any = None
    """What the base station remembers of it until it decodes: the scheme's own."""
    agreed: Mapping[str, Tensor] = field(default_factory=dict)
    """What devices and base station agreed on after it, from `Sent`."""


@dataclass(frozen=True)
class Sent:
    """What the devices send, and what each believes it sent."""

    signal: Signal
    reconstruction: Float[Tensor, "devices params"]
    """The update that each device's transmission stands for, zero where it was silent; error feedback keeps the rest."""
    delivered: Bool[Tensor, "devices slots"] | None = None
    """Which slots each device sent in: silence is per coherence block. None: everybody in all of them."""
    pilot_uses: int = 0
    """Channel uses of the round that carry pilots, counted like those of the round."""
    agreed: Mapping[str, Tensor] = field(default_factory=dict)
    """What all devices and the base station agree on before they send, such as a common scale; the uplink's
    `side_information` says what it takes."""
    capped: bool = False
    """Whether the nominal energy is the most that any device spends, in place of what they spend on average."""
    amplitude: float | None = None
    """What everybody sends louder by, so that the device that spends most spends the nominal energy; the base station knows
    it. None: the round has no such cap."""


@runtime_checkable
class Uplink(Protocol):
    """A scheme: three verbs, what it offers, and a look at how well it did."""

    @property
    def name(self) -> str:
        """What results call it."""
        ...

    @property
    def offers(self) -> type[Output]:
        """The form of its output; rules that it cannot serve are refused before training."""
        ...

    @property
    def uses_radio(self) -> bool:
        """False for bounds that are told the truth: their signals arrive as they are."""
        ...

    @property
    def estimates_num_active(self) -> bool:
        """Whether the number of devices is estimated, not told."""
        ...

    @property
    def side_information(self) -> tuple[str, ...]:
        """What reaches the base station outside the radio, in words. Nothing may be missing here."""
        ...

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Return what the base station announces before the round, built from its own update and its memory."""
        ...

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Turn every active device's message into what it sends; only `announced.downlink` is known to devices."""
        ...

    def decode(self, received: Any, announced: Announced, csi: AtReceiver) -> tuple[Output, Memory]:
        """Recover what the base station aggregates, and what it remembers for the next round."""
        ...

    def diagnose(self, sent: Sent, announced: Announced, output: Any) -> dict[str, float]:
        """Compare what was sent with what was received: metrics only, never fed back."""
        ...


def remembered(memory: Memory, name: str) -> float | None:
    """Return a number of the last round, which may come from a file."""
    found = memory.get(name)
    if found is not None and (found.numel() != 1 or not found.is_floating_point()):
        raise ArtefactError(
            f"the uplink remembers {name} as {found.dtype} {list(found.shape)}; expected one number, so start the run anew"
        )
    return None if found is None else float(found)


def where_speaking(messages: Float[Tensor, "devices params"], csi: AtDevices, uses: int) -> Tensor:
    """Return the messages with zeros where a device is silent, of schemes that send parameter after parameter.

    Args:
        messages: What the devices want to say, one parameter a channel use.
        csi: Who is silent when.
        uses: Channel uses of a slot.
    """
    num_params = messages.shape[1]
    speaking = csi.speaking(-(-num_params // uses), uses)
    if speaking is None:
        return messages
    return messages * speaking.to(messages.device).repeat_interleave(uses, dim=1)[:, :num_params]


def slot_snr(csi: AtDevices, slots: int, uses: int, name: str) -> Float[Tensor, "devices told"]:
    """Return every device's SNR as it would send alone, in each slot, or one for all of them.

    Args:
        csi: What devices know.
        slots: How many slots.
        uses: Channel uses of a slot.
        name: The scheme that depends on it.

    Raises:
        ConfigError: If the channel does not tell it.
    """
    if csi.snr is None:
        raise ConfigError(
            f"uplink = {name!r} sends by the devices' SNR, which this channel does not tell; give its AtDevices the field "
            "snr, or use another uplink"
        )
    return csi.snr[:, slot_blocks(slots, uses, csi.block_uses)] if csi.block_uses else csi.snr


MEAN_ENERGY = ("the mean energy of what devices want to send, which sets their common scale",)
LARGEST_ENERGY = ("the largest energy of what devices want to send, which sets their common scale",)
"""Side information of schemes whose devices agree on a scale."""


def new_seed(rng: torch.Generator) -> Int[Tensor, ""]:
    """Draw a seed that the base station announces, so that all know what is drawn from it."""
    return torch.randint(2**62, (), generator=rng)


def error_of_mean(sent: Sent, found: Float[Tensor, " params"]) -> dict[str, float]:
    """Compare a mean with that of what devices sent: all that schemes without counts have to diagnose."""
    return {"update_nmse": vector_nmse(sent.reconstruction.mean(dim=0), found)}


class Scheme:
    """What most uplinks share: they use the radio, estimate the number of devices, and are told nothing beside it."""

    uses_radio = True
    estimates_num_active = True
    side_information: tuple[str, ...] = ()
    most_devices: int | None = None
    """How many devices may send at once; None: any number."""
    for_more_devices = "choose another uplink"
    """What lets more of them send."""

    def diagnose(self, sent: Sent, announced: Announced, output: Any) -> dict[str, float]:
        """Measure nothing."""
        return {}


class MeanScheme(Scheme):
    """A scheme that offers the mean, and is judged by it."""

    offers = Mean

    def diagnose(self, sent: Sent, announced: Announced, output: Mean) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        return error_of_mean(sent, output.mean)


def check_devices(uplink: Any, devices: int) -> None:
    """Refuse more devices than a scheme was designed or trained for.

    Args:
        uplink: A scheme; one that is not a `Scheme` has no limit.
        devices: How many may send at once.

    Raises:
        ConfigError: If they are more.
    """
    most = getattr(uplink, "most_devices", None)
    if most is not None and devices > most:
        raise ConfigError(
            f"{devices} devices may send at once, but uplink = {uplink.name!r} is for {most} at most; "
            f"{uplink.for_more_devices}, or let fewer take part"
        )


class Relay(Scheme):
    """A scheme that sends what another link sends, and hears it in its own way.

    Args:
        link: What is announced and sent.
    """

    def __init__(self, link: Any):  # Any: each has a link of its own kind
        self.link = link

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce what the link would."""
        return self.link.broadcast(base_update, memory, rng=rng)

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send what the link would."""
        return self.link.encode(messages, announced, csi, rng=rng)
