r"""A-DSGD (Amiri and Gündüz 2020): every device keeps its largest parameters and sends random sums of them, uncoded.

    base station: a seed, and the usual size of sums (announced)
    devices:      messages [K_a, W] ──► largest parameters of every block ──► random sums of a block ──► slots
    base station: sums over all devices ──► sparse recovery (`decode/sparse.py`) ──► mean

A block has 2,048 parameters, which the seed picks. Its sums are taken with orthonormal rows of a Hadamard matrix. A block has
fewer sums than parameters if the round has fewer channel uses than parameters. Otherwise it has as many, and sparsity only
helps against noise.

Each device spends the same energy, whatever the length of its update $g_k$. It scales sums and pilots by the same
amplitude $\sqrt{\alpha_k}$. So the base station finds $\sum_k\sqrt{\alpha_k}\,g_k / \sum_k\sqrt{\alpha_k}$ without
knowing how many devices there are.

A device keeps half as many parameters as there are sums. This share is recalled from the paper, not checked.

`ca-dsgd` is the same scheme over fading (Amiri and Gündüz 2020b): devices undo their gains, and are silent where these are
weak. Power control has all of the difference, so over white noise both send the same.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Inexact, Int
from pydantic import Field
from scipy.linalg import hadamard
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common import rng as rngs
from aircomp.common.settings import Settings
from aircomp.decode.heard_pilots import in_phase
from aircomp.decode.sparse import recover
from aircomp.encode.carrier import Carrier, make_rotation
from aircomp.errors import ConfigError
from aircomp.quantize.fragment import num_slots, split
from aircomp.uplinks.base import Announced, MeanScheme, Memory, Sent, UplinkContext, new_seed
from aircomp.uplinks.outputs import Mean
from aircomp.uplinks.piloted import check_pilots, hear_devices, plan_round

KINDS = ("a-dsgd", "ca-dsgd")
BLOCK = 2048
"""Parameters that share their sums; a power of two."""
LEAST_WEIGHT, SILENT = 1e-3, 0.05
"""The least sum of amplitudes that a sum is divided by, and the least share of the largest one: with less nobody spoke in a
block, and what is heard there is noise."""


class ADsgdSettings(Settings):
    """Options of A-DSGD."""

    keep: float = Field(default=0.5, gt=0, le=1)
    """How many parameters of a block a device keeps, over the number of its sums."""


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    update: Float[Tensor, " params"]
    order: Int[Tensor, " params"]
    """The parameters in the order of blocks."""
    rows: Float[Tensor, "sums block"]
    size: float
    """The root of the mean energy of a slot, for the base station's own update; sums are divided by it."""
    carrier: Carrier


class ADsgdUplink(MeanScheme):
    """Sparse updates, projected and sent uncoded.

    Args:
        name: One of `KINDS`.
        settings: Its options.
        fragment_length: Parameters that the digital link puts into a slot.
        uses: Channel uses of a slot.
        pilots: How many slots carry pilots; None: `plan_air` decides.
        context: What the link is made for.
    """

    def __init__(
        self,
        name: str,
        settings: ADsgdSettings,
        *,
        fragment_length: int,
        uses: int,
        pilots: int | None = None,
        context: UplinkContext | None = None,
    ):
        check_pilots(name, pilots, "the devices' amplitudes")
        self.name, self.settings, self.context = name, settings, context or UplinkContext()
        self.fragment_length, self.pilots = fragment_length, pilots
        self.rotation = make_rotation(uses, self.context.seed, self.context.device)

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce which parameters share a block, which sums are taken, and the usual size of sums."""
        size, seed = base_update.numel(), new_seed(rng)
        air = plan_round(size, self.fragment_length, len(self.rotation), self.pilots, self.context)
        length = min(BLOCK, 1 << (size - 1).bit_length())
        blocks = num_slots(size, length)
        sums = min(length, air.room // blocks)
        if sums == 0:
            raise ConfigError(
                f"{self.name} needs a channel use for every {length} parameters; lengthen uplink.codeword_length"
            )
        drawn = rngs.generator(int(seed), "a-dsgd")
        order = torch.randperm(size, generator=drawn)
        signs = torch.randint(2, (length,), generator=drawn) * 2 - 1  # what is alike must not fall on one sum
        rows = torch.from_numpy(hadamard(length))[torch.randperm(length, generator=drawn)[:sums]] * (
            signs / length**0.5
        )
        carrier = Carrier(air, blocks * sums, self.rotation)
        kept = Kept(base_update, order, rows.float().to(base_update.device), 0.0, carrier)
        own = float(carrier.slots_of(self._sums(base_update[None], kept)[1]).double().square().sum(dim=2).mean()) ** 0.5
        kept = replace(kept, size=own or 1.0)
        return Announced(size, air.num_uses, {"seed": seed, "size": torch.tensor(kept.size)}, kept)

    def _sums(
        self, messages: Float[Tensor, "devices params"], kept: Kept
    ) -> tuple[Float[Tensor, "devices params"], Float[Tensor, "devices numbers"]]:
        """Return what devices keep, and the sums of it."""
        sums, length = kept.rows.shape
        blocks = split(messages[:, kept.order], length)
        number = max(round(self.settings.keep * sums), 1)
        largest = blocks.abs().topk(min(number, length), dim=2).indices
        sparse = torch.zeros_like(blocks).scatter_(2, largest, blocks.gather(2, largest))
        whole = torch.zeros_like(messages)
        whole[:, kept.order] = sparse.flatten(1)[:, : messages.shape[1]]
        return whole, (sparse @ kept.rows.T).flatten(1)

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Keep the largest parameters, and send sums of them with the energy of the round."""
        kept: Kept = announced.kept
        carrier, air = kept.carrier, kept.carrier.air
        sparse, sums = self._sums(messages, kept)
        slots = carrier.slots_of(sums / kept.size)
        energy = slots.double().square().sum(dim=(1, 2)) + len(air.places)
        loud = (air.slots / energy).sqrt().to(messages)
        speaking = csi.speaking(air.slots, air.uses)
        if speaking is not None:  # a block of parameters is in many slots, so it arrives as far as the device speaks
            sparse = sparse * speaking.any(dim=1, keepdim=True).to(sparse)
        return Sent(carrier.send(slots * loud[:, None, None], loud), sparse, speaking, pilot_uses=air.pilot_uses)

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Divide the sums by the sum of amplitudes, and recover the blocks as sparse vectors."""
        kept: Kept = announced.kept
        carrier, air, heard = kept.carrier, kept.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        weight = told.in_slots[air.rows][:, None]
        weight = weight.masked_fill(weight < max(LEAST_WEIGHT, SILENT * float(weight.max())), math.inf)
        sums = carrier.numbers_of(carrier.hear(heard) / weight).unflatten(0, (-1, len(kept.rows)))
        noise = told.noise_var * float(weight.double().square().reciprocal().mean())
        blocks = recover(sums, kept.rows, noise).flatten() * kept.size
        mean = torch.zeros(announced.num_params).to(blocks)
        mean[kept.order.to(mean.device)] = blocks[: announced.num_params]
        if self.context.include_base_station:
            mean = (mean * told.num_active + kept.update.to(mean)) / (told.num_active + 1)
        return Mean(mean=mean, num_active_hat=told.num_active), {}
