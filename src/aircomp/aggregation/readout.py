"""What the mean is formed of: the decoded integers, or a decoder's soft counts, as they are or lengthened (our addition)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.aggregation.settings import Readout

MIN_DEVICES = 1e-3
"""Soft counts with a smaller sum mean that nobody sent: a thousandth of a device is far below every estimate's error."""
OPEN = 3.0
"""Variance of what is open in a slot at which half of the gap to the sum is taken. Fitted: `tools/fit_constants.py open`
tries others on training rounds and prints the update NMSE of each."""
CERTAIN = 0.01
"""A soft count so near to an integer is certain."""

MOST_STRETCH = 16.0
"""The most that a direction is lengthened by when calibrated: what is behind a weaker response is nearly all noise. Chosen in
training on digits at −10 dB (docs/notebook/2026-11-17-calibrated.md)."""
UNSEEN = 1e-6
"""Of the mean energy of a direction: a direction in which simulated slots have less keeps its length."""


def soft_mean(
    soft_counts: Float[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    of_integers: Float[Tensor, "slots fragment"],
    readout: Readout,
) -> Float[Tensor, "slots fragment"]:
    """Average by the soft counts, and lengthen the average as the readout says."""
    soft = as_decoded(soft_counts, codewords)
    if readout == "norm":
        return with_norm_of(of_integers, soft)
    return soft if readout == "soft" else not_shrunk(soft, soft_counts, codewords, of_integers)


def as_decoded(
    soft_counts: Float[Tensor, "slots codewords"], codewords: Float[Tensor, "codewords fragment"]
) -> Float[Tensor, "slots fragment"]:
    """Average by the soft counts, divided by the round's number of devices; zero if nobody sent.

    A slot's own sum is no better guide: where the slot tells little, its sum tells little too.
    """
    devices = float(soft_counts.sum(1).double().mean()) if len(soft_counts) else 0.0
    if devices < MIN_DEVICES:
        return codewords.new_zeros(len(soft_counts), codewords.shape[1])
    return towards_sum(soft_counts.to(codewords), devices) @ codewords / devices


def towards_sum(soft_counts: Float[Tensor, "slots codewords"], devices: float) -> Float[Tensor, "slots codewords"]:
    r"""Move the soft counts of a slot towards the sum that they must have, the number of devices.

    Decoders do not enforce that sum. A count with fractional part $p$ is taken for one of the two integers around it,
    with variance $p(1-p)$. The gap to the sum is shared out in proportion to these variances. Only the part
    $1/(1 + v/3)$ of the gap is closed, where $v$ is the sum of the variances and 3 is `OPEN`: where a slot tells
    little, its gap tells little too.
    """
    part = soft_counts - soft_counts.floor()
    open_ = part * (1 - part)
    total = open_.sum(1, keepdim=True)
    gap = devices - soft_counts.sum(1, keepdim=True)
    share = open_ / total.clamp(min=torch.finfo(total.dtype).tiny)  # a certain slot has nothing to move
    return (soft_counts + share * gap / (1 + total / OPEN)).clamp_min(0)


def calibrated(
    update: Float[Tensor, "slots fragment"],
    heard: Float[Tensor, "some fragment"],
    truth: Float[Tensor, "some fragment"],
) -> Float[Tensor, "slots fragment"]:
    r"""Take the response of a decoder out of a mean.

    On slots that the base station simulated, the decoded mean follows the true one as
    $\hat u \approx \hat\mu + (u - \mu) G$: a gain for every direction of a fragment, and an offset. Both are fitted by least
    squares, and undone: $u = \mu + (\hat u - \hat\mu) G^{-1}$. The singular values of $G$ are bounded from below, so that no
    direction is lengthened by more than `MOST_STRETCH`.

    Args:
        update: The decoded mean of every slot.
        heard: The decoded means of simulated slots.
        truth: Their true means.
    """
    heard, truth = heard.double(), truth.double()
    centre, offset = truth.mean(0), heard.mean(0)
    heard, truth = heard - offset, truth - centre
    seen = truth.T @ truth
    unseen = UNSEEN * seen.diagonal().mean() * torch.eye(len(seen), dtype=seen.dtype, device=seen.device)
    if not seen.any():
        return update
    left, gains, right = torch.linalg.svd(torch.linalg.solve(seen + unseen, truth.T @ heard + unseen))
    inverse = right.T @ (left / gains.clamp(min=1 / MOST_STRETCH)).T
    return (centre + (update.double() - offset) @ inverse).to(update)


def with_norm_of(model: Float[Tensor, "slots fragment"], update: Float[Tensor, "slots fragment"]) -> Tensor:
    """Scale an update to the norm of another: a posterior mean points well but is too short."""
    length = update.norm()
    return update * (model.norm() / length.where(length > 0, 1))  # a zero update has no direction to keep


def not_shrunk(
    update: Float[Tensor, "slots fragment"],
    soft_counts: Float[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    of_integers: Float[Tensor, "slots fragment"],
) -> Float[Tensor, "slots fragment"]:
    r"""Lengthen the mean of soft counts until its projection on the true mean is, on average, as long as that one.

    A posterior mean has $E\langle\hat u, u\rangle = E\|\hat u\|^2$, so $\hat u$ falls short of $u$ by the ratio of
    $\|\hat u\|^2$ to the energy of $u$. Where slots tell little, that is the energy of $K$ devices which choose
    independently by the round's popularity $\pi$, the mean of the soft counts: in a slot
    $(1 - 1/K)\|\pi Q\|^2 + \sum_j \pi_j \|q_j\|^2 / K$. Where slots tell much, devices are seen to agree more than that,
    and the mean of the integers has the energy. Each is too small where the other holds, so the larger one counts.
    Slots whose counts are certain have their own energy: without noise nothing is lengthened.
    No mean of codewords is longer than the longest of them; soft counts that cancel would otherwise be lengthened at will.

    Args:
        update: The mean of soft counts.
        soft_counts: Posterior means of the counts.
        codewords: What each codeword stands for.
        of_integers: The mean of the decoded integers.
    """
    energy, certain = (float(fragments.double().square().sum()) for fragments in (update, of_integers))
    devices = float(soft_counts.sum(1).double().mean())
    if energy == 0 or devices < 1:
        return update
    popularity, words = soft_counts.double().mean(0) / devices, codewords.double()
    together, apart = (popularity @ words).square().sum(), popularity @ words.square().sum(1)
    open_ = ((soft_counts - soft_counts.round()).abs() > CERTAIN).any(1)
    of_certain = float(update[~open_].double().square().sum())
    independent = of_certain + int(open_.sum()) * float((1 - 1 / devices) * together + apart / devices)
    longest = math.sqrt(len(update) * float(words.square().sum(1).max()) / energy)
    return update * max(1.0, min(max(independent, certain) / energy, longest))
