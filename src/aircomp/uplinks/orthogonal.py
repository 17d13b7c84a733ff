r"""Devices that take turns (TDMA, OFDMA): each sends bits in slots of its own, and the base station decodes every update.

    base station: quantisation codebook (`tdma-vq` alone) and a seed (announced)
    devices:      SNR ──► bits that the device's own slots carry ──► update, compressed to so many bits ──► turns
    base station: every device's compressed update

The slots of a device have $u$ channel uses in all and the signal-to-noise ratio $\gamma$. They carry
$u\,\tfrac12\log_2(1+\gamma/g)$ bits without error. This is the channel's capacity, where $g$ is the gap of a real code to it.
A device puts the energy of the whole round into its own slots. With $K$ devices $\gamma$ is therefore $K$ times the SNR of
one, unless a peak limit is lower. Codes of finite length lose a little more, which is left out: the slots of a device have
thousands of uses. These schemes are what over-the-air computation has to beat.

`capacity` is a bound: all devices send indices at once, and the base station decodes them together, each at the same rate of
the multiple-access channel (`channel/capacity.py`). On one antenna and with equal gains, turns do as well.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.capacity import joint_rate
from aircomp.channel.signal import slot_blocks
from aircomp.common import rng as rngs
from aircomp.common.settings import Settings
from aircomp.encode.turns import Turns, take_turns
from aircomp.errors import ConfigError
from aircomp.quantize.codebook import QuantizeSettings, build
from aircomp.quantize.compress import COMPRESSORS
from aircomp.quantize.fragment import num_slots, split
from aircomp.quantize.nearest import lookup, nearest
from aircomp.uplinks.base import Announced, Memory, Scheme, Sent, UplinkContext, error_of_mean, new_seed, slot_snr
from aircomp.uplinks.outputs import Vectors

KINDS = ("tdma-vq", "tdma-qsgd", "tdma-sign", "tdma-topk", "d-dsgd")
JOINT = "capacity"
VQ = ("tdma-vq", JOINT)
"""Those that send indices of a codebook of quantisation."""
MOST_BITS = 64
"""The most bits for a parameter; a float has no more."""


class TdmaSettings(Settings):
    """Options of devices that take turns."""

    gap_db: float = Field(default=0.0, ge=0, le=20)
    """How far the code stays behind the channel's capacity, in dB; 0 is a bound, good codes have 1 to 3."""


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    update: Float[Tensor, " params"]
    slots: int


TOLD = ("every device's SNR", "error-free bits at capacity less tdma.gap_db")
TOLD_JOINTLY = ("the rate of the multiple-access channel", "error-free bits at capacity: a bound")


class OrthogonalUplink(Scheme):
    """Devices take turns; a compressor makes each update fit into its device's slots.

    Args:
        name: One of `KINDS`, or `JOINT`.
        settings: Its options.
        quantize: How the codebook of `tdma-vq` is built, and how many parameters the digital link puts into a slot.
        uses: Channel uses of a slot.
        peak: The most energy of a device in a slot, where the mean over the round is one.
        context: What the link is made for.
    """

    offers = Vectors
    estimates_num_active = False

    def __init__(
        self,
        name: str,
        settings: TdmaSettings,
        *,
        quantize: QuantizeSettings,
        uses: int,
        peak: float,
        context: UplinkContext | None = None,
    ):
        self.name, self.settings, self.quantize, self.uses = name, settings, quantize, uses
        self.peak, self.context = peak, context or UplinkContext()
        self.side_information = TOLD_JOINTLY if name == JOINT else TOLD

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce the seed of the order in which parameters are sent, and the quantisation codebook of `tdma-vq`."""
        slots, downlink = num_slots(base_update.numel(), self.quantize.fragment_length), {}
        if self.name in VQ:  # first of all, so that it is the codebook that the digital link has
            own = split(base_update, self.quantize.fragment_length)
            downlink["codebook"] = build(own, self.quantize, rng=rng).codebook
        downlink["seed"] = new_seed(rng)
        return Announced(base_update.numel(), slots * self.uses, downlink, Kept(base_update, slots))

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Compress every update to the bits that its device's slots carry."""
        kept: Kept = announced.kept
        joint = self.name == JOINT
        energies = torch.ones(len(messages), kept.slots) if joint else take_turns(len(messages), kept.slots, self.peak)
        bits = (self._joint_bits(energies, csi) if joint else self._bits(energies, csi)).clamp(
            max=MOST_BITS * announced.num_params
        )
        each = [self._compressed(own, float(b), announced, rng) for own, b in zip(messages, bits, strict=True)]
        vectors, sent = (torch.stack(of_all) for of_all in zip(*each, strict=True)) if each else (messages, messages)
        return Sent(
            Turns(energies, self.uses),
            sent,
            csi.speaking(kept.slots, self.uses),
            agreed={"vectors": vectors[(bits > 0).to(vectors.device)]},
            capped=not joint and min(self.peak, kept.slots) < len(messages),  # or somebody has no turn
        )

    def _joint_bits(self, energies: Float[Tensor, "devices slots"], csi: AtDevices) -> Float[Tensor, " devices"]:
        """Return what slots carry from each device where all send at once."""
        if csi.over_noise is None:
            raise ConfigError(
                f"uplink = {self.name!r} is a bound by the rate of all devices together, which this channel does not tell; "
                "give its AtDevices the field over_noise, or use another uplink"
            )
        slots, rate = energies.shape[1], joint_rate(csi.over_noise)
        if len(rate) > 1:
            rate = rate[slot_blocks(slots, self.uses, csi.block_uses)]
        speaking = csi.speaking(slots, self.uses)
        sent = energies if speaking is None else energies * speaking.to(energies)
        return (sent.double() * self.uses * rate.cpu().double().clamp(max=MOST_BITS)).sum(dim=1)

    def _bits(self, energies: Float[Tensor, "devices slots"], csi: AtDevices) -> Float[Tensor, " devices"]:
        """Return how many bits the slots of each device carry."""
        snr = slot_snr(csi, energies.shape[1], self.uses, self.name)
        ratio = (energies.double() * snr.cpu()).nan_to_num(nan=0.0, posinf=1e300)  # no energy, whatever the noise
        return (
            self.uses / 2 * torch.log1p(ratio / 10 ** (self.settings.gap_db / 10)) / torch.log(torch.tensor(2.0))
        ).sum(1)

    def _compressed(
        self, message: Float[Tensor, " params"], bits: float, announced: Announced, rng: torch.Generator
    ) -> tuple[Float[Tensor, " params"], Float[Tensor, " params"]]:
        """Return what arrives of a message, and what of it counts as sent."""
        seeded = rngs.generator(int(announced.downlink["seed"]), "turns")
        if self.name not in VQ:
            order = torch.randperm(len(message), generator=seeded)
            return COMPRESSORS[self.name.removeprefix("tdma-")](message, bits, order, rng)
        codebook = announced.downlink["codebook"]
        fragments = split(message, codebook.shape[1])
        sent = torch.randperm(len(fragments), generator=seeded)[: int(bits / torch.log2(torch.tensor(len(codebook))))]
        arrived = torch.zeros_like(fragments)
        arrived[sent] = lookup(nearest(fragments[sent], codebook), codebook)
        whole = arrived.flatten()[: len(message)]
        return whole, whole

    def decode(self, received: Tensor, announced: Announced, csi: AtReceiver) -> tuple[Vectors, Memory]:
        """Take the compressed updates as they were sent."""
        vectors = announced.agreed["vectors"]
        number = float(len(vectors))
        if not number:
            vectors = torch.zeros_like(announced.kept.update)[None]
        if self.context.include_base_station:
            vectors = torch.cat([vectors, announced.kept.update[None].to(vectors)])
        return Vectors(vectors=vectors, num_active_hat=number), {}

    def diagnose(self, sent: Sent, announced: Announced, output: Vectors) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        return error_of_mean(sent, output.vectors.mean(dim=0))
