r"""Devices that take turns (TDMA): each sends bits in slots of its own, and the base station decodes every update.

    base station: quantisation codebook (`tdma-vq` alone) and a seed (announced)
    devices:      SNR ──► bits that the device's own slots carry ──► update, compressed to so many bits ──► turns
    base station: every device's compressed update

The slots of a device have $u$ channel uses in all and the signal-to-noise ratio $\gamma$. They carry
$u\,\tfrac12\log_2(1+\gamma/g)$ bits without error. This is the channel's capacity, where $g$ is the gap of a real code to
it. A device puts the energy of the whole round into its own slots. With $K$ devices $\gamma$ is therefore $K$ times the
SNR of one, unless a peak limit is lower. Where signals arrive out of phase, late or out of tune, the part that is not as
expected is noise, and $\gamma$ becomes $\gamma'$ of `channel/expected.py`. Codes of finite length lose a little more, which
is left out: the slots of a device have thousands of uses. `ofdma-vq` does the same side by side in frequency. These schemes
are what over-the-air computation has to beat.

`capacity` is a bound: all devices send indices at once, and the base station decodes them together, each at the same rate of
the multiple-access channel (`channel/capacity.py`). On one antenna and with equal gains, turns do as well.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.capacity import joint_rate
from aircomp.channel.expected import effective_snr
from aircomp.channel.signal import Signal, slot_blocks
from aircomp.common import rng as rngs
from aircomp.encode.turns import Turns, take_turns
from aircomp.errors import ConfigError
from aircomp.quantize.codebook import build, lookup, nearest
from aircomp.quantize.compress import COMPRESSORS
from aircomp.quantize.fragment import num_slots, split
from aircomp.schemes.base import (
    Broadcast,
    Memory,
    Private,
    Scheme,
    SchemeContext,
    Sent,
    error_of_mean,
    new_seed,
    slot_snr,
)
from aircomp.schemes.outputs import Vectors
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import CapacitySettings, SlotSettings, TurnsSettings, TurnsVqSettings

MOST_BITS = 64
"""The most bits for a parameter; a float has no more."""


@dataclass(frozen=True)
class Plan:
    """What devices spend where, and what arrives of them."""

    signal: Signal
    bits: Float[Tensor, " devices"]
    capped: bool = False
    """Whether some spend less than the nominal energy."""
    agreed: Mapping[str, Tensor] = field(default_factory=dict)
    """What devices and base station agreed on for it."""


class AtCapacity(Scheme):
    """Devices send bits that arrive without error; a compressor makes each update fit into its device's slots.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    offers = Vectors
    estimates_num_active = False

    def __init__(self, settings: SlotSettings, context: SchemeContext | None = None):
        self.settings, self.context, self.uses = settings, context or SchemeContext(), settings.codeword_length

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce the seed of the order in which parameters are sent, and what the compressor needs."""
        slots = num_slots(base_update.numel(), self.settings.fragment_length)
        values = self._announced(base_update, rng) | {"seed": new_seed(rng)}
        return Broadcast(base_update.numel(), slots * self.uses, values), base_update

    def _announced(self, base_update: Float[Tensor, " params"], rng: torch.Generator) -> dict[str, Tensor]:
        """Return what the compressor needs to know."""
        return {}

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Compress every update to the bits that its device's slots carry."""
        slots = broadcast.num_uses // self.uses
        plan = self._plan(len(messages), slots, csi)
        bits = plan.bits.clamp(max=MOST_BITS * broadcast.num_params)
        each = [self._compressed(own, float(b), broadcast, rng) for own, b in zip(messages, bits, strict=True)]
        vectors, sent = (torch.stack(of_all) for of_all in zip(*each, strict=True)) if each else (messages, messages)
        return Sent(
            plan.signal,
            sent,
            csi.speaking(slots, self.uses),
            payload=vectors[(bits > 0).to(vectors.device)],
            capped=plan.capped,
            agreed=plan.agreed,
        )

    @abstractmethod
    def _plan(self, num_devices: int, slots: int, csi: AtDevices) -> Plan:
        """Return what devices spend where, and how many bits arrive of each."""

    @abstractmethod
    def _compressed(
        self, message: Float[Tensor, " params"], bits: float, broadcast: Broadcast, rng: torch.Generator
    ) -> tuple[Float[Tensor, " params"], Float[Tensor, " params"]]:
        """Return what arrives of a message, and what of it counts as sent."""

    def decode(
        self, received: Float[Tensor, "devices params"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Vectors, Memory]:
        """Take the compressed updates as they were sent."""
        vectors, number = received, float(len(received))
        if not number:
            vectors = torch.zeros_like(private)[None]
        if self.context.include_base_station:
            vectors = torch.cat([vectors, private[None].to(vectors)])
        return Vectors(vectors=vectors, num_active_hat=number), {}

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Vectors) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        return error_of_mean(sent, output.vectors.mean(dim=0))


def carried_bits(
    snr: Float[Tensor, "devices slots"], csi: AtDevices, uses: int, gap_db: float
) -> Float[Tensor, " devices"]:
    """Return the bits that arrive of every device, with the SNR that each of its slots has at its energy."""
    heard = snr.double().nan_to_num(nan=0.0, posinf=1e300)  # no energy, whatever the noise
    if csi.share is not None:
        heard = effective_snr(heard, csi.share.cpu()[:, slot_blocks(heard.shape[1], uses, csi.block_uses)])
    return (uses / 2 * torch.log1p(heard / 10 ** (gap_db / 10)) / math.log(2)).sum(dim=1)


class Vq(AtCapacity):
    """Indices of a quantisation codebook, as many as the bits allow."""

    settings: TurnsVqSettings | CapacitySettings

    def _announced(self, base_update: Float[Tensor, " params"], rng: torch.Generator) -> dict[str, Tensor]:
        # drawn first of all, so that it is the codebook that the digital link has
        own = split(base_update, self.settings.fragment_length)
        return {"codebook": build(own, self.settings.quantize, rng=rng).codebook}

    def _compressed(
        self, message: Float[Tensor, " params"], bits: float, broadcast: Broadcast, rng: torch.Generator
    ) -> tuple[Float[Tensor, " params"], Float[Tensor, " params"]]:
        codebook, seeded = broadcast.values["codebook"], rngs.generator(int(broadcast.values["seed"]), "turns")
        fragments = split(message, codebook.shape[1])
        sent = torch.randperm(len(fragments), generator=seeded)[: int(bits / torch.log2(torch.tensor(len(codebook))))]
        arrived = torch.zeros_like(fragments)
        arrived[sent] = lookup(nearest(fragments[sent], codebook), codebook)
        whole = arrived.flatten()[: len(message)]
        return whole, whole


class InTurns(AtCapacity):
    """Every device has slots of its own, with the energy of the whole round."""

    settings: TurnsSettings
    side_information = ("every device's SNR", "error-free bits at capacity less uplink.gap_db")

    def _plan(self, num_devices: int, slots: int, csi: AtDevices) -> Plan:
        energies = take_turns(num_devices, slots, self.settings.peak)
        snr = slot_snr(csi, slots, self.uses, self.name).cpu()
        bits = carried_bits(energies.double() * snr, csi, self.uses, self.settings.gap_db)
        # who has no turn spends nothing
        return Plan(Turns(energies, self.uses), bits, capped=min(self.settings.peak, slots) < num_devices)


@scheme("tdma-vq", sends="codeword indices, in turns", needs="any", source="this package, rates at capacity", ours=True)
class TdmaVq(InTurns, Vq):
    """Vector-quantised updates in turns."""

    settings_class = TurnsVqSettings
    settings: TurnsVqSettings


class Compressed(InTurns):
    """Updates in turns, by one of the compressors."""

    settings_class = TurnsSettings
    compress: Callable[..., tuple[Tensor, Tensor]]
    """Returns what arrives of a message and what of it counts as sent, from the message, its bits, an order, a generator."""

    def _compressed(
        self, message: Float[Tensor, " params"], bits: float, broadcast: Broadcast, rng: torch.Generator
    ) -> tuple[Float[Tensor, " params"], Float[Tensor, " params"]]:
        seeded = rngs.generator(int(broadcast.values["seed"]), "turns")
        return type(self).compress(message, bits, torch.randperm(len(message), generator=seeded), rng)


@scheme(
    "tdma-qsgd",
    sends="parameters rounded at random, in turns",
    needs="any",
    source="Alistarh et al. 2017",
    checked="recalled",
    against="rounding is right on average",
)
class TdmaQsgd(Compressed):
    """QSGD in turns."""

    settings_class = TurnsSettings
    compress = COMPRESSORS["qsgd"]


@scheme(
    "tdma-sign",
    sends="signs and one scale, in turns",
    needs="any",
    source="Karimireddy et al. 2019",
    checked="recalled",
    against="more bits arrive more exactly",
)
class TdmaSign(Compressed):
    """Scaled signs in turns."""

    settings_class = TurnsSettings
    compress = COMPRESSORS["sign"]


@scheme(
    "tdma-topk",
    sends="its largest parameters, in turns",
    needs="any",
    source="Stich et al. 2018",
    checked="recalled",
    against="more bits arrive more exactly",
)
class TdmaTopk(Compressed):
    """The largest parameters in turns."""

    settings_class = TurnsSettings
    compress = COMPRESSORS["topk"]


@scheme(
    "d-dsgd",
    sends="where its largest parameters are, and their mean, in turns",
    needs="any",
    source="Amiri and Gündüz 2020",
    checked="recalled",
    against="more bits arrive more exactly",
)
class DDsgd(Compressed):
    """Places of the largest parameters, and their mean, in turns."""

    settings_class = TurnsSettings
    compress = COMPRESSORS["d-dsgd"]


@scheme(
    "capacity",
    sends="codeword indices, decoded together",
    needs="any",
    source="bound: multiple-access capacity",
    checked="derived",
    against="the rate of the worst set of devices; all indices arrive from 5.5 dB on",
)
class Capacity(Vq):
    """All devices send at once, each at the same rate of the multiple-access channel."""

    settings_class = CapacitySettings
    settings: CapacitySettings
    side_information = ("the rate of the multiple-access channel", "error-free bits at capacity: a bound")

    def _plan(self, num_devices: int, slots: int, csi: AtDevices) -> Plan:
        if csi.over_noise is None:
            raise ConfigError(
                f"uplink = {self.name!r} is a bound by the rate of all devices together, which this channel does not tell; "
                "give its AtDevices the field over_noise, or use another uplink"
            )
        energies, rate = torch.ones(num_devices, slots), joint_rate(csi.over_noise)
        if len(rate) > 1:
            rate = rate[slot_blocks(slots, self.uses, csi.block_uses)]
        speaking = csi.speaking(slots, self.uses)
        sent = energies if speaking is None else energies * speaking.to(energies)
        bits = (sent.double() * self.uses * rate.cpu().double().clamp(max=MOST_BITS)).sum(dim=1)
        return Plan(Turns(energies, self.uses), bits)
