r"""A lattice whose nearest point a Viterbi search finds: a convolutional code over the whole numbers modulo five.

    symbols u_1, u_2, … modulo 5 ──► two outputs a step, c_o = Σ_i g_oi u_{t-i} modulo 5 ──► points: all z with z ≡ c modulo 5

Every sequence of symbols gives a codeword, and sums of codewords modulo five are codewords. So all whole numbers that are a
codeword modulo five form a lattice (construction A): sums of points are points. What is left of a sequence beside its
nearest point is its *remainder*. If several devices send remainders, then the sum of these is the sum of what they stand for,
minus one point; so the remainder of the sum tells the sum, if that is known up to less than a cell.

A cell has the volume $\sqrt 5$ a dimension. A uniform sequence leaves remainders of mean square `CELL`. A cube of that
volume leaves more, and the trellis also unwraps sums in more noise than a cube. Trellis-coded quantisation
is due to Marcellin and Fischer (1990), sums of remainders of nested lattices to Nazer and Gastpar (2011).

A state holds the last symbols, the newest with the largest weight. Sequences begin in state zero and end in any.
"""

import functools

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.decoders.kernels.native import nearest_points, ready

Q = 5
"""The modulus."""
TAPS = ((2, 0, 4, 1), (1, 1, 1, 2))
"""g: what each output multiplies the symbols with, the newest first."""
MEMORY = len(TAPS[0]) - 1
CELL = 0.311
"""Mean square of the remainder of what is uniform over a cell; of a cube of the same volume it is .417."""
LONGEST = 1024
"""Numbers of a sequence: so many keep what is remembered for the way back within a processor's cache."""


@functools.cache
def ways(taps: tuple[tuple[int, ...], ...] = TAPS) -> Int[Tensor, "states symbols"]:
    """Return the outputs of every way into a state, by the oldest symbol of the state before, as 5 c₀ + c₁."""
    memory = len(taps[0]) - 1
    register = torch.arange(Q ** (memory + 1))[:, None] // Q ** torch.arange(memory, -1, -1) % Q
    outputs = register @ torch.tensor(taps).T % Q
    return (Q * outputs[:, 0] + outputs[:, 1]).view(Q**memory, Q)


def remainders(values: Float[Tensor, "*batch numbers"]) -> Float[Tensor, "*batch numbers"]:
    """Return what is left of every sequence beside the nearest point of the lattice.

    Args:
        values: As many as `padded` returns; they are cut into sequences of equal length.
    """
    targets = values.double().remainder(Q).to(torch.float32).reshape(-1, _length(values.shape[-1])).contiguous()
    with torch.no_grad():
        found = nearest_points(targets, ways()) if ready(targets) else _searched(targets)
    return found.view(values.shape).to(values.dtype)


def _length(numbers: int) -> int:
    """Return the length of the sequences that so many numbers are cut into."""
    pieces = max(-(-numbers // LONGEST), 1)
    assert numbers % (2 * pieces) == 0, "numbers that are cut are padded first"
    return max(numbers // pieces, 2)


def padded(numbers: int) -> int:
    """Return the least number, no smaller, that sequences of equal length fill.

    >>> padded(0), padded(1), padded(2050)
    (0, 2, 2052)
    """
    pieces = max(-(-numbers // LONGEST), 1)
    while -(-numbers // (2 * pieces)) * 2 > LONGEST:
        pieces += 1
    return -(-numbers // (2 * pieces)) * 2 * pieces


def _left(targets: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch residues"]:
    """Return what targets leave beside the nearest number of every residue."""
    apart = targets[..., None] - torch.arange(Q).to(targets)
    return torch.where(apart > Q / 2, apart - Q, torch.where(apart < -Q / 2, apart + Q, apart))


def _searched(targets: Float[Tensor, "sequences numbers"]) -> Float[Tensor, "sequences numbers"]:
    """Search with torch's operations, all sequences at once."""
    labels = ways().to(targets.device)
    states = len(labels)
    left = _left(targets.unflatten(1, (-1, 2)))  # [sequences, steps, outputs, residues]
    before = (torch.arange(states, device=targets.device) % (states // Q) * Q)[:, None] + torch.arange(
        Q, device=targets.device
    )
    score = torch.full((len(targets), states), 1e30).to(targets)
    score[:, 0] = 0
    chosen = []
    for step in left.square().unbind(1):
        cost = (step[:, 0, :, None] + step[:, 1, None, :]).flatten(1)
        best = (score[:, before] + cost[:, labels]).min(dim=2)
        score = best.values
        chosen.append(best.indices.to(torch.int8))
    state = score.argmin(dim=1)
    rest = torch.empty_like(left[..., 0])
    rows = torch.arange(len(targets), device=targets.device)
    for step in reversed(range(len(chosen))):
        oldest = chosen[step][rows, state].long()
        label = labels[state, oldest]
        rest[:, step, 0] = left[rows, step, 0, label // Q]
        rest[:, step, 1] = left[rows, step, 1, label % Q]
        state = before[state, oldest]
    return rest.flatten(1)
