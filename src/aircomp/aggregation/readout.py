"""What the mean is formed of: the decoded integers, or a decoder's soft counts, as they are or lengthened (our addition)."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.aggregation.rules import Rule
from aircomp.errors import ConfigError

Readout = Literal["auto", "integers", "soft", "norm", "unbiased"]
"""The mean of the decoded integers, of their posterior means, the latter at the norm of the former, or not shrunk; auto is
the last one for the mean, and integers for every other rule."""

MIN_DEVICES = 1e-3
"""Soft counts with a smaller sum mean that nobody sent: a thousandth of a device is far below every estimate's error."""
OPEN = 3.0
"""Variance of what is open in a slot at which half of the gap to the sum is taken. Fitted: `tools/fit_constants.py open`
tries others on training rounds and prints the update NMSE of each."""


def check_readout(rule: str | Rule, readout: Readout) -> None:
    """Refuse soft counts for a rule that needs integers.

    Raises:
        ConfigError: If it does.
    """
    if readout not in ("auto", "integers") and rule != "mean":
        name = rule if isinstance(rule, str) else getattr(rule, "__name__", type(rule).__name__)
        raise ConfigError(f"aggregate.readout = {readout!r} is for the mean, not for {name!r}; use 'integers'")


def chosen_readout(rule: str | Rule, readout: Readout) -> Readout:
    """Return what `auto` stands for; every other readout is itself."""
    if readout != "auto":
        return readout
    return "unbiased" if rule == "mean" else "integers"


def soft_mean(
    soft_counts: Float[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    of_integers: Float[Tensor, "slots fragment"],
    readout: Readout,
) -> Float[Tensor, "slots fragment"]:
    """Divide by the devices of the round: of a slot that tells little, the sum of the soft counts tells little too."""
    devices = float(soft_counts.sum(1).double().mean()) if len(soft_counts) else 0.0
    if devices < MIN_DEVICES:
        return torch.zeros_like(of_integers)
    soft = towards_sum(soft_counts.to(codewords), devices) @ codewords / devices
    if readout == "norm":
        return with_norm_of(of_integers, soft)
    return soft if readout == "soft" else not_shrunk(soft, soft_counts, codewords, of_integers)


def towards_sum(soft_counts: Float[Tensor, "slots codewords"], devices: float) -> Float[Tensor, "slots codewords"]:
    r"""Let the soft counts of a slot add up to the number of devices, as far as they are sure.

    No decoder's posterior means know that they must. A count with fractional part $p$ is taken for one of the two integers
    around it, with variance $p(1-p)$; the gap is shared out by these variances, and the less of it the larger their sum
    $v$ is, $1/(1 + v/3)$ with 3 for `OPEN`: where a slot tells little, neither does its gap.
    """
    part = soft_counts - soft_counts.floor()
    open_ = part * (1 - part)
    total = open_.sum(1, keepdim=True)
    gap = devices - soft_counts.sum(1, keepdim=True)
    share = open_ / total.clamp(min=torch.finfo(total.dtype).tiny)  # a certain slot has nothing to move
    return (soft_counts + share * gap / (1 + total / OPEN)).clamp_min(0)


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
    r"""Lengthen the mean of soft counts until, along the true mean, it is as long as that on average.

    A posterior mean has $E\langle\hat u, u\rangle = E\|\hat u\|^2$, so $\hat u$ falls short of $u$ by the ratio of
    $\|\hat u\|^2$ to the energy of $u$. Where slots tell little, that is the energy of $K$ devices which choose
    independently by the round's popularity $\pi$, the mean of the soft counts: in a slot
    $(1 - 1/K)\|\pi Q\|^2 + \sum_j \pi_j \|q_j\|^2 / K$. Where slots tell much, devices are seen to agree more than that,
    and the mean of the integers has the energy. Each is too small where the other holds, so the larger one counts.
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
    independent = len(update) * float((1 - 1 / devices) * together + apart / devices)
    longest = math.sqrt(len(update) * float(words.square().sum(1).max()) / energy)
    return update * max(1.0, min(max(independent, certain) / energy, longest))
