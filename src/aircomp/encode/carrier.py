r"""Puts plain numbers into the slots of the digital link, for schemes whose numbers add up in the air.

    numbers [devices, numbers] ──► an equal share in every slot, spread over all of its uses ──► slots, pilots between them

A slot has $l$ uses and carries $m$ numbers. Each number is spread over all uses by a sequence of its own. The sequences
are orthonormal, so this is worth as much as sending each number $l/m$ times and combining the copies. It also works where
$l/m$ is not an integer.

Neighbours differ less in energy than numbers far apart, so some slots are much louder than others. A long interleaver puts
the numbers of every slot together from all over the round, which makes slots alike and the peaks of the signal lower.

If a device has more numbers than the round has uses, the round carries only some parameters. A seed that everybody knows
draws them. Error feedback keeps the others.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.encode.codebook import random_rotation
from aircomp.encode.pilots import WithPilots, data_slots, num_pilots, pilot_sequence, spread_slots
from aircomp.encode.spread import Spread
from aircomp.errors import ConfigError


@dataclass(frozen=True)
class Air:
    """The slots of a round, and which of them carry pilots."""

    slots: int
    uses: int
    """Channel uses of a slot."""
    places: Int[Tensor, " pilots"]
    """The slots with pilots."""

    @property
    def num_uses(self) -> int:
        """Channel uses of the round."""
        return self.slots * self.uses

    @property
    def pilot_uses(self) -> int:
        """Channel uses with pilots."""
        return len(self.places) * self.uses

    @property
    def rows(self) -> Int[Tensor, " data"]:
        """The slots with data."""
        return data_slots(self.slots, self.places)

    @property
    def room(self) -> int:
        """Numbers that a device can send in the round."""
        return len(self.rows) * self.uses


def plan_air(slots: int, uses: int, *, pilots: int | None, block_uses: int = 0) -> Air:
    """Return a round in which pilots take the place of some slots.

    Args:
        slots: How many slots the digital link has for the same update.
        uses: Channel uses of a slot.
        pilots: How many slots carry pilots; None: `num_pilots`, but at least one in every coherence block.
        block_uses: Channel uses of a coherence block; 0: the whole round is one block.

    Raises:
        ConfigError: If pilots leave no slot.
    """
    if pilots is None:
        slots = max(slots, 2)
        blocks = -(-slots * uses // block_uses) if block_uses else 1
        pilots = min(max(num_pilots(slots), blocks), slots // 2)
        if pilots >= blocks > 1:
            return Air(slots, uses, _one_in_each(spread_slots(slots, pilots), slots, uses, block_uses))
    if pilots >= slots:
        raise ConfigError(f"uplink.pilots = {pilots} leaves none of the round's {slots} slots; expected fewer")
    return Air(slots, uses, spread_slots(slots, pilots))


def _one_in_each(places: Int[Tensor, " pilots"], slots: int, uses: int, block_uses: int) -> Int[Tensor, " more"]:
    """Return places with one more in the first slot of every block that has none: the last may be short."""
    block = torch.arange(slots) * uses // block_uses
    first = torch.searchsorted(block, torch.arange(int(block[-1]) + 1))
    without = first[~torch.isin(block[first], block[places])]
    return torch.cat([places, without]).sort().values


def chosen_parameters(seed: Tensor | None, num_params: int, number: int) -> Int[Tensor, " chosen"] | None:
    """Return the parameters that a round carries, ascending; None: all of them.

    Args:
        seed: What the base station announced; it announces none where the round has room for all.
        num_params: Parameters of the update.
        number: How many the round has room for.
    """
    if number >= num_params:
        return None
    assert seed is not None
    order = torch.randperm(num_params, generator=rngs.generator(int(seed), "parameters"))
    return order[:number].sort().values


def take(
    values: Shaped[Tensor, "*batch params"], chosen: Int[Tensor, " chosen"] | None
) -> Shaped[Tensor, "*batch chosen"]:
    """Return the chosen parameters."""
    return values if chosen is None else values[..., chosen.to(values.device)]


def put(
    values: Float[Tensor, "*batch chosen"], chosen: Int[Tensor, " chosen"] | None, num_params: int
) -> Float[Tensor, "*batch params"]:
    """Return whole updates, zero where nothing was chosen."""
    if chosen is None:
        return values
    whole = values.new_zeros(*values.shape[:-1], num_params)
    whole[..., chosen.to(values.device)] = values
    return whole


@dataclass(frozen=True)
class Carrier:
    """Puts numbers into the slots of a round, and takes their sums out of it."""

    air: Air
    numbers: int
    """How many numbers a device sends, at most as many as there is room for."""
    rotation: Float[Tensor, "uses uses"]
    """Orthonormal sequences, one per row."""
    mixed_by: int | None = None
    """The seed of a long interleaver; None: neighbours share a slot."""
    together: int = 1
    """How many numbers side by side make a value; the interleaver leaves them side by side, where the same devices speak."""

    @cached_property
    def _order(self) -> Int[Tensor, " room"] | None:
        """Which number every place of the round has."""
        if self.mixed_by is None:
            return None
        room = len(self.air.rows) * self.per_slot
        values = torch.randperm(room // self.together, generator=rngs.generator(self.mixed_by, "interleaver"))
        mixed = (values[:, None] * self.together + torch.arange(self.together)).flatten()
        return torch.cat([mixed, torch.arange(len(mixed), room)])

    @property
    def per_slot(self) -> int:
        """How many numbers a slot carries."""
        return max(-(-self.numbers // len(self.air.rows)), 1)

    @property
    def basis(self) -> Float[Tensor, "numbers uses"]:
        """The sequences of a slot's numbers."""
        return self.rotation[: self.per_slot]

    def slots_of(self, values: Float[Tensor, "*batch numbers"]) -> Float[Tensor, "*batch data fragment"]:
        """Put numbers into slots, zeros behind the last one."""
        room = len(self.air.rows) * self.per_slot
        filled = torch.nn.functional.pad(values, (0, room - values.shape[-1]))
        return take(filled, self._order).unflatten(-1, (-1, self.per_slot))

    def send(
        self, slots: Float[Tensor, "devices data fragment"], amplitudes: Float[Tensor, " devices"] | None = None
    ) -> WithPilots:
        """Spread the numbers of every slot over its uses, and put the pilots between.

        Args:
            slots: Numbers in slots; a slot has energy one on average.
            amplitudes: What each device multiplies the pilots by; None: one.
        """
        signal = Spread(slots, self.basis.to(slots))
        return WithPilots(signal, pilot_sequence(self.air.uses), self.air.places, amplitudes)

    def hear(self, received: Float[Tensor, "slots uses"]) -> Float[Tensor, "data fragment"]:
        """Undo the spreading: sums of the devices' numbers, each with the noise of one use."""
        return received[self.air.rows.to(received.device)] @ self.basis.T.to(received)

    def numbers_of(self, slots: Shaped[Tensor, "*batch data fragment"]) -> Shaped[Tensor, "*batch numbers"]:
        """Take numbers out of slots."""
        places = slots.flatten(-2)
        if self._order is not None:
            places = torch.empty_like(places).index_copy_(-1, self._order.to(places.device), places)
        return places[..., : self.numbers]

    def of_slots(self, values: Shaped[Tensor, "*batch data"]) -> Shaped[Tensor, "*batch numbers"]:
        """Return a slot's value for each of its numbers."""
        return self.numbers_of(values[..., None].expand(*values.shape, self.per_slot))

    def arrived(
        self,
        values: Float[Tensor, "devices values"],
        speaking: Bool[Tensor, "devices slots"] | None,
    ) -> Float[Tensor, "devices values"]:
        """Return the values with zeros where a device was silent; a value arrives if all of its numbers do.

        Args:
            values: What each device means by its numbers.
            speaking: Who speaks in every slot; None: everybody in all of them.
        """
        if speaking is None:
            return values
        spoken = self.of_slots(speaking[:, self.air.rows]).unflatten(1, (-1, self.together)).all(dim=2)
        return values * spoken.to(values)


def amplitude_of_one(slots: Float[Tensor, "devices slots numbers"]) -> float:
    """Return the factor that gives slots the mean energy one; zero if there is nothing to scale."""
    energy = float(slots.double().square().sum(dim=2).mean()) if slots.numel() else 0.0
    return energy**-0.5 if energy > 0 else 0.0


def make_rotation(uses: int, seed: int, device: str | torch.device) -> Float[Tensor, "uses uses"]:
    """Return the orthonormal sequences of a link, drawn from its seed."""
    rng = rngs.generator(seed, "random-access codebook")
    return random_rotation(uses, rng).float().to(device)
