"""The quantisation codebook that the base station builds from its own update (Sec. III-D), and its nearest codewords (III-A).

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
from jaxtyping import Float, Int, Integer
from torch import Tensor

from aircomp.errors import ConfigError, ShapeError
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


@torch.no_grad()
def nearest(
    fragments: Float[Tensor, "*batch fragment"], codebook: Float[Tensor, "codewords fragment"], *, chunk: int = 2048
) -> Int[Tensor, "*batch"]:
    r"""Return the index (int64) of the codeword nearest to each fragment.

    $$\arg\min_j \|u - q_j\|^2 = \arg\min_j\ \tfrac12\|q_j\|^2 - u^\top q_j$$

    Equal codewords give the lowest of their indices. Other ties, and distances that agree to within rounding of
    $\|u\|\,\|q_j\|$, may fall to either side: the matrix product rounds differently for different shapes.

    Args:
        fragments: Any batch of fragments; float16 and bfloat16 are compared in float32.
        codebook: One codeword a row.
        chunk: Fragments compared at a time. It bounds the memory, and at the default the scores stay in cache.
    """
    if codebook.ndim != 2 or codebook.shape[0] < 1:
        raise ShapeError(f"codebook has shape {tuple(codebook.shape)}; expected [codewords, fragment]")
    if fragments.ndim < 1 or fragments.shape[-1] != codebook.shape[1]:
        raise ShapeError(f"fragments has shape {tuple(fragments.shape)}; expected [..., {codebook.shape[1]}]")
    if chunk < 1:
        raise ConfigError(f"chunk = {chunk}: expected at least 1")
    check_finite("fragments", fragments)
    check_finite("codebook", codebook)
    dtype = torch.promote_types(torch.promote_types(fragments.dtype, codebook.dtype), torch.float32)
    codebook = codebook.to(dtype)
    # Scaling one factor of each product scales all scores alike: squares of tiny updates do not underflow.
    scaled = codebook * power_of_two_scale(codebook)
    half_norms = 0.5 * (codebook * scaled).sum(dim=1)
    parts = fragments.reshape(-1, codebook.shape[1]).split(chunk)
    chosen = [torch.addmm(half_norms, part.to(dtype), scaled.T, alpha=-1).argmin(dim=1) for part in parts]
    return _first_of_equals(codebook)[torch.cat(chosen)].reshape(fragments.shape[:-1])


def lookup(
    indices: Integer[Tensor, "*batch"], codebook: Float[Tensor, "codewords fragment"]
) -> Float[Tensor, "*batch fragment"]:
    """Return the codeword that each index stands for."""
    if codebook.ndim != 2:
        raise ShapeError(f"codebook has shape {tuple(codebook.shape)}; expected [codewords, fragment]")
    flat = indices.reshape(-1).long()
    if flat.numel():
        low, high = (int(bound) for bound in torch.aminmax(flat))
        if low < 0 or high >= len(codebook):
            raise ShapeError(f"indices run from {low} to {high}; expected 0 to {len(codebook) - 1} for this codebook")
    return codebook.index_select(0, flat).reshape(*indices.shape, codebook.shape[1])


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise ShapeError unless `tensor` is real and finite.

    The extremes show it in one pass, since both infinities and NaN reach them; `isfinite` costs twenty times that.
    """
    if not tensor.is_floating_point():
        raise ShapeError(f"{name} holds {tensor.dtype}; expected real floating-point numbers")
    if tensor.numel() and not torch.isfinite(torch.stack(torch.aminmax(tensor))).all():
        raise ShapeError(f"{name} holds values that are not finite; check the update they come from")


def power_of_two_scale(tensor: Tensor) -> Tensor:
    """Return the power of two that brings the largest magnitude into [½, 1): multiplying by it rounds nothing."""
    low, high = torch.aminmax(tensor)
    exponent = torch.frexp(torch.maximum(-low, high)).exponent
    # float32 holds no power above 2^127; only subnormal numbers ask for one
    return torch.ldexp(torch.ones_like(high), -exponent.clamp(min=-126))


def _first_of_equals(codebook: Tensor) -> Tensor:
    """Map each row to the first row equal to it.

    Equal rows need not get equal scores: where the row count is no multiple of the vector width, a matrix product
    treats its last columns with other instructions.
    """
    _, group = torch.unique(codebook, dim=0, return_inverse=True)
    rows = torch.arange(len(codebook), device=codebook.device)
    first = torch.full_like(rows, len(codebook)).scatter_reduce_(0, group, rows, reduce="amin")
    return first[group]
