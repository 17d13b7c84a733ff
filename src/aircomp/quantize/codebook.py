"""The quantisation codebook that the base station builds from its own update (Sec. III-D).

    fragments ──► k-means++ seeds ──► (Lloyd) ──► nearest ──► popularity ──► order ──► Quantizer
                  └── in the curvature-aware space if asked ──┘

Seeding is greedy: every step draws a few candidates in proportion to their squared distance and keeps the one that
lowers the total most. The order in which greedy seeding finds its seeds is not random: far-away fragments of high
energy tend to come first, so `order = "none"` is no shuffled codebook.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.errors import ShapeError
from aircomp.quantize.nearest import check_finite, nearest, power_of_two_scale
from aircomp.quantize.settings import QuantizeSettings


@dataclass(frozen=True)
class Quantizer:
    """What the base station broadcasts before a round."""

    codebook: Float[Tensor, "codewords fragment"]
    """One codeword a row."""
    popularity: Float[Tensor, " codewords"]
    """Share of the base station's fragments that chose each codeword; sums to one."""
    base_indices: Int[Tensor, " slots"]
    """The base station's own choice in every slot."""


@torch.no_grad()
def build(fragments: Float[Tensor, "slots fragment"], settings: QuantizeSettings, *, rng: torch.Generator) -> Quantizer:
    """Build codebook, popularity and order from the base station's fragments (Sec. III-D).

    With fewer distinct fragments than codewords, every distinct fragment is a codeword and the remaining rows repeat
    the first one: no fragment ever chooses them, because equal codewords give the lowest index, and their popularity
    is zero. Fragments that differ by less than 1e-22 of the largest entry count as equal.

    Raises:
        ShapeError: If there are no fragments, their length is not that of the settings, or a value is not finite.
    """
    if fragments.ndim != 2 or fragments.shape[0] < 1 or fragments.shape[1] != settings.fragment_length:
        raise ShapeError(
            f"fragments has shape {tuple(fragments.shape)};"
            f" expected [slots, {settings.fragment_length}] with at least one slot"
        )
    check_finite("fragments", fragments)
    fragments = fragments.to(torch.promote_types(fragments.dtype, torch.float32))
    n, space = settings.num_codewords, _clustering_space(fragments, settings.curvature_aware)
    trials = 2 + int(math.log(n))  # the usual number for greedy seeding, as in scikit-learn
    draws = torch.rand(n, trials, dtype=torch.float64, generator=rng, device=rng.device).to(fragments.device)
    seeded = fragments[kmeans_plus_plus(space(fragments), draws)]
    found = _lloyd(fragments, seeded, space, settings.lloyd_iterations)

    chosen = nearest(fragments, found)
    tally = torch.bincount(chosen, minlength=len(found))
    order = codeword_order(found, tally, settings.order)
    copies = order[:1].expand(n - len(found))
    popularity = tally[order].to(fragments.dtype) / len(fragments)
    return Quantizer(
        codebook=found[torch.cat([order, copies])],
        popularity=torch.nn.functional.pad(popularity, (0, len(copies))),
        base_indices=torch.argsort(order)[chosen],  # the inverse permutation: from seed number to rank
    )


def kmeans_plus_plus(
    points: Float[Tensor, "slots fragment"], draws: Float[Tensor, "codewords trials"]
) -> Int[Tensor, " seeds"]:
    """Return the rows of `points` that greedy k-means++ picks, in order: all distinct, fewer if the points run out.

    Args:
        points: What to spread the seeds over, scaled so that squares neither overflow nor vanish.
        draws: Uniform numbers in [0, 1), float64: a row for each seed, a column for each candidate.
    """
    columns, norms = points.T.contiguous(), points.square().sum(dim=1)
    # every step writes here: fresh memory of this size costs more than the arithmetic
    scratch, potential = torch.empty_like(columns), points.new_empty(draws.shape[1], len(points))

    seed = (draws[0, :1] * len(points)).long()
    distance = _squared_distance(columns, points[seed], scratch)
    seeds, remaining = [seed], [torch.ones((), dtype=torch.float64, device=points.device)]  # the first always counts
    for draw in draws[1:]:
        # float64: rounding in a long running sum must not hide a fragment
        mass = distance.cumsum(0, dtype=torch.float64)
        remaining.append(mass[-1].clone())  # a view would keep all of `mass`
        # `right` skips what has no distance left; the clamp is for a mass of zero, whose seeds are dropped below
        candidates = torch.searchsorted(mass, draw * mass[-1], right=True).clamp_(max=len(points) - 1)
        torch.addmm(norms, points[candidates], columns, alpha=-2, out=potential).add_(norms[candidates, None])
        best = torch.minimum(potential, distance, out=potential).sum(dim=1).argmin(dim=0, keepdim=True)
        seeds.append(candidates[best])
        # The expanded square is good enough to compare candidates, but its rounding would leave chosen points and
        # their duplicates some distance; the difference leaves them exactly none.
        distance = torch.minimum(distance, _squared_distance(columns, points[seeds[-1]], scratch))
    num_distinct = int(torch.count_nonzero(torch.stack(remaining)))
    return torch.cat(seeds)[:num_distinct]


def _squared_distance(columns: Tensor, point: Tensor, scratch: Tensor) -> Tensor:
    return torch.sub(columns, point.T, out=scratch).square_().sum(dim=0)


def _clustering_space(fragments: Tensor, curvature_aware: bool) -> Callable[[Tensor], Tensor]:
    r"""Return the map into the space in which distances are taken for clustering (Sec. III-D).

    $$\tilde u = W(u - \mu), \qquad W_i = 1/\sqrt{\sigma_i^2 + \varepsilon}$$

    or a mere change of unit. Both are affine, so nothing needs to be mapped back: seeds are rows of the original
    fragments, and the mean of a cluster is mapped to the mean of the mapped cluster.
    """
    unit = power_of_two_scale(fragments)
    if not curvature_aware:
        return lambda u: u * unit
    mean = (fragments * unit).mean(dim=0)
    variance = (fragments * unit).var(dim=0, correction=0)
    # ε keeps constant directions finite; it follows the data, whose scale shrinks by orders as training proceeds
    epsilon = 1e-6 * variance.max()
    # without any variance all fragments are equal, and any weight will do
    weight = torch.where(epsilon > 0, (variance + epsilon).rsqrt(), torch.ones_like(variance))
    return lambda u: (u * unit - mean) * weight


def _lloyd(fragments: Tensor, codebook: Tensor, space: Callable[[Tensor], Tensor], iterations: int) -> Tensor:
    """Move each codeword to the mean of the fragments nearest to it in `space`; one without any stays."""
    for _ in range(iterations):
        chosen = nearest(space(fragments), space(codebook))
        tally = torch.bincount(chosen, minlength=len(codebook))[:, None]
        sums = torch.zeros_like(codebook).index_add_(0, chosen, fragments)
        codebook = torch.where(tally > 0, sums / tally.clamp(min=1), codebook)  # min=1: 0/0 where none chose it
    return codebook


def codeword_order(
    codebook: Float[Tensor, "codewords fragment"], tally: Tensor, order: str
) -> Int[Tensor, " codewords"]:
    """Return the rows of a codebook in the order asked for; `tally` says how often each was chosen."""
    match order:
        case "popularity":
            return torch.sort(tally, descending=True, stable=True).indices
        case "cosine":
            return _seriate(codebook, first=tally.argmax())
        case _:
            return torch.arange(len(codebook), device=codebook.device)


def _seriate(codebook: Tensor, first: Tensor) -> Tensor:
    """Put codewords of similar direction side by side by spectral seriation, as the authors' code does.

    The order is that of the Fiedler vector: the eigenvector of the second smallest eigenvalue of the graph Laplacian, where
    the weight of an edge is the cosine of two codewords, or zero where it is negative. An eigenvector has no sign: the
    codeword `first` comes in the first half. Codewords that are similar to none, such as zero, come last.
    """
    scaled = (codebook * power_of_two_scale(codebook)).double().cpu()
    direction = torch.nn.functional.normalize(scaled, dim=1)
    weight = (direction @ direction.T).clamp(min=0).fill_diagonal_(0)
    linked = weight.sum(dim=1) > 0
    place = torch.full((len(codebook),), torch.inf, dtype=torch.float64)
    if linked.any():
        weight = weight[linked][:, linked]
        fiedler = torch.linalg.eigh(torch.diag(weight.sum(dim=1)) - weight).eigenvectors[:, 1]
        place[linked] = fiedler
    if 0 < place[first] < torch.inf:
        place[linked] *= -1
    return torch.sort(place, stable=True).indices.to(codebook.device)
