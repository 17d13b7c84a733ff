r"""Estimates the sum of one digit from each of $K$ devices, received with noise.

The digits are $a_k \in \{0, \dots, q-1\}$, so their sum $t = \sum_k a_k$ has $K(q-1)+1$ possible values. Its prior is the
$K$-fold convolution of the distribution of a digit. The base station receives $y = t + n$ with Gaussian noise. It can
take the nearest value (`ml`), the most probable one (`map`), the mean of the posterior (`mean`), or the best linear estimate
(`lmmse`): with the mean $m$ and the variance $v$ of the prior, $m + (y - m)\,v/(v + \sigma^2)$.

Points of a plane are estimated in the same way, with a prior over pairs.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.decoders.settings import Estimate

CHUNK = 1 << 22
"""Pairs of a sum and a value that are compared at a time: 16 MB a copy."""


def sum_prior(digit_prior: Float[Tensor, " digits"], num_devices: int) -> Float[Tensor, " values"]:
    """Return the distribution of the sum of one digit from each device, if devices are independent.

    >>> sum_prior(torch.tensor([0.5, 0.5]), 2)
    tensor([0.2500, 0.5000, 0.2500], dtype=torch.float64)
    """
    one = digit_prior.double().cpu() / digit_prior.double().sum().cpu()
    total = torch.ones(1, dtype=torch.float64)
    for _ in range(num_devices):
        padded = torch.nn.functional.pad(total, (len(one) - 1, len(one) - 1))
        total = padded.unfold(0, len(one), 1) @ one.flip(0)
    return total


def estimate_sums(
    heard: Float[Tensor, " numbers"], noise_var: float, prior: Float[Tensor, " values"], estimate: Estimate
) -> Float[Tensor, " numbers"]:
    """Return the estimates of all sums.

    Args:
        heard: Sums with noise; digits are one apart.
        noise_var: The variance of the noise.
        prior: The probability of the sums 0, 1, 2 and so on.
        estimate: Which of the four estimates.
    """
    if estimate == "ml" or noise_var <= 0:
        return heard.round().clamp(0, len(prior) - 1)
    values = torch.arange(len(prior), dtype=heard.dtype, device=heard.device)
    if estimate == "lmmse":
        return _linear(heard[:, None], noise_var, values[:, None], prior)[:, 0]
    log_prior = prior.clamp(min=1e-30).log().to(heard)
    found = []
    for some in heard.split(max(CHUNK // len(prior), 1)):
        score = log_prior - (some[:, None] - values).square() / (2 * noise_var)
        found.append(values[score.argmax(dim=1)] if estimate == "map" else score.softmax(dim=1) @ values)
    return torch.cat(found) if found else heard


def plane_prior(point_prior: Float[Tensor, "rows columns"], num_devices: int) -> Float[Tensor, "sum_rows sum_columns"]:
    """Return the distribution of the sum of one point of the plane from each device, if devices are independent.

    >>> plane_prior(torch.tensor([[0.5], [0.5]]), 2).flatten()
    tensor([0.2500, 0.5000, 0.2500], dtype=torch.float64)
    """
    one = point_prior.double().cpu() / point_prior.double().sum().cpu()
    total = torch.ones(1, 1, dtype=torch.float64)
    for _ in range(num_devices):
        rows, columns = one.shape
        padded = torch.nn.functional.pad(total, (columns - 1, columns - 1, rows - 1, rows - 1))
        total = torch.nn.functional.conv2d(padded[None, None], one.flip(0, 1)[None, None])[0, 0]
    return total


def estimate_points(
    heard: Float[Tensor, "numbers axes"],
    noise_var: float,
    prior: Float[Tensor, "rows columns"],
    estimate: Estimate,
) -> Float[Tensor, "numbers axes"]:
    """Return the estimates of all sums of points.

    Args:
        heard: Sums with noise, the column first; on a line there is but the column.
        noise_var: The variance of the noise on each axis.
        prior: The probability of each sum, by row and column.
        estimate: Which of the four estimates.
    """
    axes = heard.shape[1]
    last = torch.tensor([prior.shape[1] - 1, prior.shape[0] - 1]).to(heard)[:axes]
    if estimate == "ml" or noise_var <= 0:
        return heard.round().clamp(min=0).minimum(last)
    points = (
        torch.cartesian_prod(torch.arange(prior.shape[0]), torch.arange(prior.shape[1])).flip(1)[:, :axes].to(heard)
    )
    if estimate == "lmmse":
        return _linear(heard, noise_var, points, prior.flatten())
    likely = prior.flatten() > 1e-12  # corners of the plane that no round ever meets
    points, log_prior = points[likely], prior.flatten()[likely].log().to(heard)
    found = []
    for some in heard.split(max(CHUNK // len(points), 1)):
        # |y − s|² without |y|², which all sums share
        score = log_prior - (points.square().sum(dim=1) - 2 * some @ points.T) / (2 * noise_var)
        found.append(points[score.argmax(dim=1)] if estimate == "map" else score.softmax(dim=1) @ points)
    return torch.cat(found) if found else heard


def _linear(
    heard: Float[Tensor, "numbers axes"],
    noise_var: float,
    points: Float[Tensor, "points axes"],
    prior: Float[Tensor, " points"],
) -> Float[Tensor, "numbers axes"]:
    """Return the linear estimates with the least squared error."""
    shares, known = prior.double().to(points.device), points.double()
    mean = shares @ known
    spread = (shares[:, None] * (known - mean)).T @ (known - mean)
    gain = torch.linalg.solve(spread + noise_var * torch.eye(len(mean)).to(spread), spread)
    return (mean + (heard.double() - mean) @ gain).to(heard)
