r"""A-DSGD (Amiri and Gündüz 2020): every device keeps its largest parameters and sends random sums of them, uncoded.

    base station: a seed, and the usual size of sums (announced)
    devices:      messages [K_a, W] ──► largest parameters of every block ──► random sums of a block ──► slots
    base station: sums over all devices ──► sparse recovery (`decoders/sparse.py`) ──► mean

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
from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from scipy.linalg import hadamard
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common import rng as rngs
from aircomp.decoders.sparse import recover
from aircomp.encode.carrier import Carrier, make_rotation
from aircomp.errors import ConfigError
from aircomp.quantize.fragment import num_slots, split
from aircomp.schemes.base import Broadcast, MeanScheme, Memory, Private, SchemeContext, Sent, in_phase, new_seed
from aircomp.schemes.outputs import Mean
from aircomp.schemes.piloted import carrier_of, hear_devices, plan_round
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import ADsgdSettings

BLOCK = 2048
"""Parameters that share their sums; a power of two."""
LEAST_WEIGHT, SILENT = 1e-3, 0.05
"""The least sum of amplitudes that a sum is divided by, and the least share of the largest one: with less nobody spoke in a
block, and what is heard there is noise."""


@dataclass(frozen=True)
class SparseRound:
    """What both sides derive from the broadcast."""

    order: Int[Tensor, " params"]
    """The parameters in the order of blocks."""
    rows: Float[Tensor, "sums block"]
    carrier: Carrier


@scheme(
    "a-dsgd",
    sends="random sums of its largest parameters, uncoded",
    needs="in phase",
    source="Amiri and Gündüz 2020",
    checked="recalled",
    against="sparse vectors come back from half as many sums",
)
class ADsgd(MeanScheme):
    """Sparse updates, projected and sent uncoded.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = ADsgdSettings

    def __init__(self, settings: ADsgdSettings, context: SchemeContext | None = None):
        self.settings, self.context = settings, context or SchemeContext()
        self.rotation = make_rotation(settings.codeword_length, self.context.seed, self.context.device)

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce a seed, by which parameters share a block and sums are taken, and the usual size of sums."""
        size, seed = base_update.numel(), new_seed(rng)
        air = plan_round(size, self.settings, self.context)
        of_round = self._round(Broadcast(size, air.num_uses, {"seed": seed}))
        slots = of_round.carrier.slots_of(self._sums(base_update[None], of_round)[1])
        usual = float(slots.double().square().sum(dim=2).mean()) ** 0.5 or 1.0
        return Broadcast(size, air.num_uses, {"seed": seed, "size": torch.tensor(usual)}), base_update

    def _round(self, broadcast: Broadcast) -> SparseRound:
        """Return what both sides derive from the broadcast."""
        size = broadcast.num_params
        air = plan_round(size, self.settings, self.context)
        length = min(BLOCK, 1 << (size - 1).bit_length())
        blocks = num_slots(size, length)
        sums = min(length, air.room // blocks)
        if sums == 0:
            raise ConfigError(
                f"{self.name} needs a channel use for every {length} parameters; lengthen uplink.codeword_length"
            )
        drawn = rngs.generator(int(broadcast.values["seed"]), "a-dsgd")
        order = torch.randperm(size, generator=drawn)
        signs = torch.randint(2, (length,), generator=drawn) * 2 - 1  # what is alike must not fall on one sum
        rows = torch.from_numpy(hadamard(length))[torch.randperm(length, generator=drawn)[:sums]] * (
            signs / length**0.5
        )
        return SparseRound(
            order,
            rows.float().to(self.rotation.device),
            carrier_of(self, air, blocks * sums),
        )

    def _sums(
        self, messages: Float[Tensor, "devices params"], of_round: SparseRound
    ) -> tuple[Float[Tensor, "devices params"], Float[Tensor, "devices numbers"]]:
        """Return what devices keep, and the sums of it."""
        sums, length = of_round.rows.shape
        blocks = split(messages[:, of_round.order], length)
        number = max(round(self.settings.keep * sums), 1)
        largest = blocks.abs().topk(min(number, length), dim=2).indices
        sparse = torch.zeros_like(blocks).scatter_(2, largest, blocks.gather(2, largest))
        whole = torch.zeros_like(messages)
        whole[:, of_round.order] = sparse.flatten(1)[:, : messages.shape[1]]
        return whole, (sparse @ of_round.rows.T).flatten(1)

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Keep the largest parameters, and send sums of them with the energy of the round."""
        of_round, usual = self._round(broadcast), float(broadcast.values["size"])
        carrier, air = of_round.carrier, of_round.carrier.air
        sparse, sums = self._sums(messages, of_round)
        slots = carrier.slots_of(sums / usual)
        energy = slots.double().square().sum(dim=(1, 2)) + len(air.places)
        loud = (air.slots / energy).sqrt().to(messages)
        speaking = csi.speaking(air.slots, air.uses)
        if speaking is not None:  # a block of parameters is in many slots, so it arrives as far as the device speaks
            sparse = sparse * speaking.any(dim=1, keepdim=True).to(sparse)
        return Sent(carrier.send(slots * loud[:, None, None], loud), sparse, speaking, pilot_uses=air.pilot_uses)

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Divide the sums by the sum of amplitudes, and recover the blocks as sparse vectors."""
        of_round, usual = self._round(broadcast), float(broadcast.values["size"])
        carrier, air, heard = of_round.carrier, of_round.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        weight = told.in_slots[air.rows][:, None]
        weight = weight.masked_fill(weight < max(LEAST_WEIGHT, SILENT * float(weight.max())), math.inf)
        sums = carrier.numbers_of(carrier.hear(heard) / weight).unflatten(0, (-1, len(of_round.rows)))
        noise = told.noise_var * float(weight.double().square().reciprocal().mean())
        blocks = recover(sums, of_round.rows, noise).flatten() * usual
        mean = torch.zeros(broadcast.num_params).to(blocks)
        mean[of_round.order.to(mean.device)] = blocks[: broadcast.num_params]
        if self.context.include_base_station:
            mean = (mean * told.num_active + private.to(mean)) / (told.num_active + 1)
        return Mean(mean=mean, num_active_hat=told.num_active), {}


@scheme(
    "ca-dsgd",
    sends="what a-dsgd does, behind its inverted gain",
    needs="in phase, by inversion",
    source="Amiri and Gündüz 2020b",
    checked="recalled",
    against="over white noise it is a-dsgd",
)
class CaDsgd(ADsgd):
    """`a-dsgd` over fading."""

    settings_class = ADsgdSettings
    power_control = ("inversion", "a-dsgd")
