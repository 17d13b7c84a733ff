r"""What the base station makes of sums that it heard with noise: the posterior mean under a prior that it fits to the round.

A sum has prior mean $c_t u_i$, where $u_i$ is the own update and $c_t$ belongs to the tensor, and prior variance $\tau^2 V_i$
with the predicted $V_i$. The scale τ is one of `SCALES`. How common each is among parameters of like predicted size,
expectation maximisation finds from what was heard (an empirical Bayes prior: Kiefer and Wolfowitz 1956, for scale mixtures
Stephens 2017). With one scale this is the Wiener estimate; several let most parameters be smaller than the mean square
says, and a few much larger. Of what is predicted to be largest much is smaller, and the other way round; so parts of the
order have weights of their own.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

SCALES = tuple(2.0**power for power in range(-10, 9, 2))
"""τ²."""
PASSES = 30
"""Of expectation maximisation."""
SPREAD_OF_SLOPES = 0.5
"""By how much c of a tensor differs from that of all, over the latter."""
ENTRIES = 50.0
"""Parameters of a tensor's own variance that the one of all tensors is taken together with."""
GROUPS, ENOUGH = 8, 500
"""In how many parts of the order scales have weights of their own at most, and the fewest parameters of a part."""
AT_ONCE = 1 << 16
"""Parameters whose likelihoods are held at once in the posterior."""


@dataclass(frozen=True)
class Prior:
    """What sums are expected to be."""

    means: Float[Tensor, " params"]
    variances: Float[Tensor, " params"]
    weights: Float[Tensor, "groups scales"]
    """How common each scale is in every part of the order."""
    slopes: Float[Tensor, " tensors"]
    """c: what the own update is multiplied by."""


def fit_prior(
    heard: Float[Tensor, " params"],
    noise: Float[Tensor, " params"],
    own: Float[Tensor, " params"],
    variances: Float[Tensor, " params"],
    tensors: Int[Tensor, " params"],
    num_tensors: int,
) -> Prior:
    """Fit the prior to the sums of a round.

    Args:
        heard: Sums with noise, by falling predicted variance.
        noise: The noise variance of each.
        own: The base station's own numbers.
        variances: Of sums, as predicted, up to a factor.
        tensors: The tensor of each.
        num_tensors: How many there are; of some nothing may have been heard.
    """

    def by_tensor(values: Tensor) -> Tensor:
        return torch.zeros(num_tensors, dtype=values.dtype, device=values.device).index_add_(0, tensors, values)

    heard, variances = heard.double(), variances.double()
    level = float((heard.square() - noise).sum() / variances.sum().clamp(min=1e-300))
    variances = variances * max(level, 1e-3 * float(noise.mean() / variances.mean().clamp(min=1e-300)), 1e-300)
    sure = 1 / (noise + variances)
    along, own_energy = by_tensor(sure * heard * own), by_tensor(sure * own.square())
    common = float(along.sum() / own_energy.sum()) if float(own_energy.sum()) > 0 else 0.0
    hold = 1 / max((SPREAD_OF_SLOPES * common) ** 2, 1e-300)
    slopes = (along + hold * common) / (own_energy + hold)
    means = slopes[tensors] * own
    rest = (heard - means).square() - noise
    weight = sure.square() * variances
    above, below = by_tensor(weight * rest), by_tensor(weight * variances)
    together = float((above.sum() / below.sum().clamp(min=1e-300)).clamp(min=1e-3))
    held = ENTRIES * float(below.sum()) / max(len(heard), 1)
    levels = ((above + held * together) / (below + held)).clamp(min=1e-2 * together)
    variances = variances * levels[tensors]
    return Prior(means, variances, _common_scales((heard - means).square(), noise, variances), slopes)


def _likelihoods(squares: Tensor, noise: Tensor, variances: Tensor) -> Float[Tensor, "params scales"]:
    """Return how likely each scale makes the square of a difference, up to a factor for each parameter."""
    total = noise[:, None] + variances[:, None] * torch.tensor(SCALES, dtype=torch.float64).to(variances)
    log = -0.5 * (squares[:, None] / total + total.log())
    return (log - log.max(dim=1, keepdim=True).values).exp()


def _common_scales(squares: Tensor, noise: Tensor, variances: Tensor) -> Float[Tensor, "groups scales"]:
    groups = min(max(len(squares) // ENOUGH, 1), GROUPS)
    weights = torch.full((groups, len(SCALES)), 1 / len(SCALES), dtype=torch.float64, device=squares.device)
    step = max(len(squares) // AT_ONCE, 1)  # so many parameters tell common weights well
    some = slice(None, None, step)
    likely = _likelihoods(squares[some], noise[some], variances[some])
    of_group = _groups(len(squares), groups).to(squares.device)[some]
    number = torch.bincount(of_group, minlength=groups)[:, None].clamp(min=1)
    for _ in range(PASSES if len(squares) else 0):
        each = likely * weights[of_group]
        each = each / each.sum(dim=1, keepdim=True)
        weights = torch.zeros_like(weights).index_add_(0, of_group, each) / number
    return weights


def _groups(params: int, groups: int) -> Int[Tensor, " params"]:
    """Return the part of the order that every parameter belongs to: what is predicted to be large is often less so."""
    return torch.arange(params) * groups // max(params, 1)


def posterior(
    heard: Float[Tensor, " params"], noise: Float[Tensor, " params"], prior: Prior
) -> tuple[Float[Tensor, " params"], Float[Tensor, " params"]]:
    """Return mean and variance of sums after they were heard with noise."""
    means, variances = torch.empty_like(prior.means), torch.empty_like(prior.means)
    scales = torch.tensor(SCALES, dtype=torch.float64).to(prior.variances)
    of_group = _groups(len(heard), len(prior.weights)).to(heard.device)
    for start in range(0, len(heard), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        apart, before, loud = heard[some].double() - prior.means[some], prior.variances[some], noise[some]
        each = _likelihoods(apart.square(), loud, before) * prior.weights[of_group[some]]
        each = each / each.sum(dim=1, keepdim=True)
        kept = before[:, None] * scales / (before[:, None] * scales + loud[:, None])
        mean = (each * kept).sum(dim=1)
        means[some] = prior.means[some] + mean * apart
        second = (each * (kept * loud[:, None] + kept.square() * apart.square()[:, None])).sum(dim=1)
        variances[some] = second - (mean * apart).square()
    return means, variances.clamp(min=0)
