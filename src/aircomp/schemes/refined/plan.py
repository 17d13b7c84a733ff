r"""How a round is divided among one analog stage and modulo stages; the base station decides and announces it.

Parameters stand in the order of their predicted variance. Each stage carries the first $n_j$ of them, the next one no more.
A number of the analog stage has energy $e_0$ on average, so noise of variance $\sigma^2$ leaves
$\varepsilon_0 = \sigma^2/e_0$ in a sum.

A modulo stage sends what is left of $b x$ beside the nearest point of a lattice (`decoders/trellis.py`). The base station
knows $b$ times the sum up to $b^2\varepsilon_{j-1}$, so it unwraps the sum if that and the noise, $\nu = \sigma^2 r/e_j$ with
remainders of energy $r$, stay below the cell's mean square $c$ by a margin $m$:

$$b^2\varepsilon_{j-1} + \nu = c/m, \qquad 1/\varepsilon_j = 1/\varepsilon_{j-1} + b^2/\nu.$$

In saturated cells ($r = c$) each stage divides the error by $e_j/m\sigma^2$. It gains only if that is more than one: where
the receiver hears one device alone well. What is wrongly unwrapped adds `FAILURES` of the cell's noise.
The plan with the least mean error over the noises that the next round may have is taken (`next_noises`); the own update
stands for those of devices. Where noise differs from round to round, cells so have a wider margin.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.decoders.trellis import CELL, padded

FAILURES = ((1.0, 0.183), (1.5, 0.0512), (2.0, 0.0131), (2.5, 0.0042), (3.0, 0.0017), (3.5, 0.0005))
"""By margin in decibels: the error of wrong unwrapping over the variance of what is in the cell, if that is Gaussian."""
LEAST_MARGIN = 10 ** (FAILURES[0][0] / 10)
"""A stage with less is not listened to."""
MARGINS = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0)
"""What may be planned for the mean noise, in decibels."""
SIZES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15)
"""How much of a stage the next one may carry."""
FIRST_SIZES = (0.7, 0.5, 0.35, 0.25)
"""How much of the room the analog stage may take where it has no room for all."""
ANALOG_SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SECOND_SHARES = (0.3, 0.4, 0.5, 0.6, 0.7)
"""Of the energy, and of what the analog stage leaves."""
WORTH = 0.97
"""A plan must promise an error smaller by this than analog transmission alone."""
USUAL_SPREAD, WORTH_ROUNDS = 0.2, 3.0
"""The deviation of the logarithm of the noise from round to round before any is known, that of 7 to 13 devices at one SNR,
and the rounds that this is worth."""
QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Of the noise of the next round, all as probable."""
NEIGHBOURS = 8
"""Numbers over which a trellis spreads what is large."""


@dataclass(frozen=True)
class Plan:
    """What every stage carries, the analog one first."""

    numbers: tuple[int, ...]
    shares: tuple[float, ...]
    """Of the energy."""
    cells: tuple[float, ...]
    """b of each modulo stage, for messages of mean energy one a number of the analog stage."""

    @property
    def used(self) -> int:
        """Numbers that are sent, those included that fill the last sequences of a trellis."""
        return self.numbers[0] + sum(map(padded, self.numbers[1:]))


@dataclass(frozen=True)
class Expected:
    """What the base station expects of a round."""

    noises: Float[Tensor, " noises"]
    """Noise variances of a number, all as probable."""
    energy: float
    """Of a device in the round."""
    gathered: float
    """Mean energy of a sum, over that of a device's number."""


def analog_alone(params: int, room: int) -> Plan:
    """Return the plan without modulo stages."""
    return Plan((min(params, room),), (1.0,), ())


def next_noises(noises: Float[Tensor, " rounds"]) -> Float[Tensor, " noises"]:
    """Return noise variances that the next round may have, all as probable, after those of the last rounds.

    Their logarithm is taken for normal, with the spread that the last rounds had and the usual one before them.

    >>> next_noises(torch.tensor([1.0, 1.0])).min() < 0.8
    tensor(True)
    """
    logs, rounds = noises.log(), len(noises)
    spread = WORTH_ROUNDS * USUAL_SPREAD**2 + float((logs - logs.mean()).square().sum())
    deviation = (spread / (WORTH_ROUNDS + rounds) * (1 + 1 / rounds)) ** 0.5
    return (logs.mean() + deviation * torch.special.ndtri(torch.tensor(QUANTILES, dtype=noises.dtype))).exp()


def choose_plan(own: Float[Tensor, " params"], worth: Float[Tensor, " params"], expected: Expected, room: int) -> Plan:
    """Return the plan with the least expected error.

    Args:
        own: The base station's numbers in the order of their predicted variance, as loud as devices send them.
        worth: What noise of variance one in each number adds to the error of the update.
        expected: Noise and energy.
        room: Numbers that the round has room for.
    """
    alone = analog_alone(len(own), room)
    if (
        len(own) < 2
        or not own[: alone.numbers[0]].any()
        or not bool((expected.noises > 0).all())
        or expected.energy <= 0
    ):
        return alone
    expectation = _Expectation(own.double(), worth.double(), expected)
    best, least = (
        alone,
        WORTH * float(expectation.errors(alone.numbers, torch.ones(1, 1).double(), torch.empty(1, 0).double())),
    )
    for numbers in _sizes(len(own), room):
        shares, margins = _candidates(len(numbers))
        cells = expectation.cells(numbers, shares, margins)
        errors = expectation.errors(numbers, shares, cells)
        place = int(errors.argmin())
        if float(errors[place]) < least:
            least, best = (
                float(errors[place]),
                Plan(numbers, tuple(shares[place].tolist()), tuple(cells[place].tolist())),
            )
    return best


def _sizes(params: int, room: int) -> Iterator[tuple[int, ...]]:
    """Yield how many numbers the stages may have."""
    firsts = [params] if params < room else []
    firsts += [int(share * room) for share in FIRST_SIZES if int(share * room) < params]
    for first in firsts:
        for second in (int(size * first) // 2 * 2 for size in SIZES):
            if second < 2 or first + padded(second) > room:
                continue
            yield first, second
            for third in (int(size * second) // 2 * 2 for size in SIZES):
                if third >= 2 and first + padded(second) + padded(third) <= room:
                    yield first, second, third


def _candidates(stages: int) -> tuple[Float[Tensor, "plans stages"], Float[Tensor, " plans"]]:
    """Return shares of the energy and margins."""
    first = torch.tensor(ANALOG_SHARES, dtype=torch.float64)
    margins = 10 ** (torch.tensor(MARGINS, dtype=torch.float64) / 10)
    if stages == 2:
        first, margin = torch.meshgrid(first, margins, indexing="ij")
        return torch.stack([first, 1 - first], -1).flatten(0, 1), margin.flatten()
    second = torch.tensor(SECOND_SHARES, dtype=torch.float64)
    first, second, margin = torch.meshgrid(first, second, margins, indexing="ij")
    shares = torch.stack([first, (1 - first) * second, (1 - first) * (1 - second)], -1)
    return shares.flatten(0, 2), margin.flatten()


def _failures(margin: Float[Tensor, "*plans"]) -> Float[Tensor, "*plans"]:
    """Return what wrong unwrapping leaves, over what is in the cell: the logarithm is interpolated."""
    decibels, shares = (torch.tensor(column, dtype=torch.float64) for column in zip(*FAILURES, strict=True))
    place = (10 * margin.log10() - decibels[0]) / (decibels[1] - decibels[0])
    left = place.floor().clamp(0, len(decibels) - 2).long()
    part = (place - left).clamp(0, 1)
    return (shares.log()[left] * (1 - part) + shares.log()[left + 1] * part).exp()


def _sums(values: Float[Tensor, " numbers"]) -> Float[Tensor, " more"]:
    """Return the sum of the first numbers, for every number of them."""
    return torch.nn.functional.pad(values.cumsum(0), (1, 0))


class _Expectation:
    """Expected errors of plans for one round, in units in which the numbers of the analog stage have mean energy one.

    Args:
        own: Numbers in the order of stages.
        worth: Of each.
        expected: Noise and energy.
    """

    def __init__(self, own: Tensor, worth: Tensor, expected: Expected):
        self.expected, self.own = expected, own
        self.energies, self.worth, self.unsent = _sums(own.square()), _sums(worth), _sums(worth * own.square())
        self._ordered: dict[int, tuple[Tensor, Tensor]] = {}

    def cells(
        self, numbers: tuple[int, ...], shares: Float[Tensor, "plans stages"], margins: Float[Tensor, " plans"]
    ) -> Float[Tensor, "plans cells"]:
        """Return the cells that have a margin in the mean noise; next to nothing where no cell has it."""
        noise, found = float(self.expected.noises.mean()), []
        error = self._analog_error(numbers[0], shares[:, 0], noise)
        for number, share in zip(numbers[1:], shares.T[1:], strict=True):
            use, spent = padded(number) / (share * self.expected.energy), torch.full_like(share, CELL)
            square = torch.zeros_like(share)
            for _ in range(4):  # a finer cell has longer remainders, which are sent more quietly
                square = (CELL / margins - noise * use * spent).clamp(min=1e-6 * CELL) / error
                spent = self._remainder(square, number, numbers[0])
            found.append(square.sqrt())
            error = 1 / (1 / error + square / (noise * use * spent))
        return torch.stack(found, -1)

    def errors(
        self, numbers: tuple[int, ...], shares: Float[Tensor, "plans stages"], cells: Float[Tensor, "plans cells"]
    ) -> Float[Tensor, " plans"]:
        """Return the mean error of plans over the noises."""
        noise = self.expected.noises.double()
        error = self._analog_error(numbers[0], shares[:, :1], noise)  # [plans, noises]
        heard, total, ends = torch.ones_like(error, dtype=torch.bool), torch.zeros_like(error), (*numbers[1:], 0)
        for stage, (number, end) in enumerate(zip(numbers, ends, strict=True)):
            if stage:
                square = cells[:, stage - 1 : stage].square()
                use = padded(number) / (shares[:, stage : stage + 1] * self.expected.energy)
                left = noise * use * self._remainder(square, number, numbers[0])
                in_cell = square * error + left
                heard = heard & (in_cell * LEAST_MARGIN <= CELL)
                finer = 1 / (1 / error + square / left) + _failures(CELL / in_cell) * in_cell / square
                error = torch.where(heard, finer, error)
            total = total + error * float(self.worth[number] - self.worth[end])
        mean = float(self.energies[numbers[0]]) / numbers[0]
        unsent = self.expected.gathered * float(self.unsent[-1] - self.unsent[numbers[0]])
        return (mean * total + unsent).mean(dim=1)

    def _analog_error(self, number: int, shares: Tensor, noise: Float[Tensor, " noises"] | float) -> Tensor:
        """Return what the analog stage leaves of a sum."""
        error, signal = noise * number / (shares * self.expected.energy), self.expected.gathered
        return error * signal / (error + signal)

    def _remainder(self, squares: Float[Tensor, "*plans"], number: int, first: int) -> Float[Tensor, "*plans"]:
        """Return the mean energy of remainders of the first numbers times b: about the lesser of b²x² and the cell."""
        if number not in self._ordered:
            energies = self.own[:number].square()
            if number >= NEIGHBOURS:
                energies = energies[: number // NEIGHBOURS * NEIGHBOURS].unflatten(0, (-1, NEIGHBOURS)).mean(1)
            ordered = energies.sort().values
            self._ordered[number] = ordered, _sums(ordered)
        ordered, sums = self._ordered[number]
        square = squares.clamp(min=1e-12) * first / float(self.energies[first])
        below = torch.searchsorted(ordered, CELL / square)
        return (square * sums[below] + CELL * (len(ordered) - below)) / len(ordered)
