"""What holds of every aggregation rule."""

import torch
from torch import Tensor

from aircomp.aggregation.rules import Rule, aggregate, takes_own
from aircomp.common.rng import fixed_generator

_CODEWORDS, _SLOTS, _FRAGMENT, _DEVICES = 12, 20, 5, 9


def check_rule(rule: str | Rule) -> None:
    """Check the properties that every aggregation rule must have.

    Args:
        rule: A name from `aircomp.aggregator_names()`, or a function of (counts, codewords).

    Raises:
        AssertionError: With a sentence that says what the rule did.
    """
    rng = fixed_generator("rule")
    codewords = torch.randn(_CODEWORDS, _FRAGMENT, generator=rng)
    chosen = torch.randint(_CODEWORDS, (_SLOTS, _DEVICES), generator=rng)
    counts = torch.zeros(_SLOTS, _CODEWORDS, dtype=torch.int64).scatter_add_(1, chosen, torch.ones_like(chosen))
    before = counts.clone(), codewords.clone()
    fragments = codewords[chosen[:, 0]]  # the base station has fragments like those of a device
    own, turned = ({"own": each} if takes_own(rule) else {} for each in (fragments, fragments.flip(0)))
    result = aggregate(rule, counts, codewords, **own)
    assert result.shape == (_SLOTS, _FRAGMENT), (
        f"the rule returned shape {tuple(result.shape)}, expected [slots, fragment]"
    )
    assert torch.isfinite(result).all(), "the rule returned values that are not finite"
    assert torch.equal(counts, before[0]), "the rule changed the counts in place"
    assert torch.equal(codewords, before[1]), "the rule changed the codewords in place"
    order = torch.randperm(_CODEWORDS, generator=rng)
    _assert_close(
        aggregate(rule, counts[:, order], codewords[order], **own), result, "the order of the codewords matters"
    )
    _assert_close(
        aggregate(rule, counts.flip(0), codewords, **turned),
        result.flip(0),
        "one slot's counts change another's result",
    )
    agreed = torch.zeros_like(counts).scatter_(1, chosen[:, :1], _DEVICES)
    alone = codewords[chosen[:, 0]]
    together = aggregate(rule, agreed, codewords, **own)
    direction = (together * alone).sum(dim=1)
    assert (direction > 0).all(), "where all devices agree, the rule points away from what they agree on"
    empty = aggregate(rule, torch.zeros_like(counts), codewords, **own)
    assert empty.shape == result.shape, "slots that nobody sent in have another shape"


def _assert_close(found: Tensor, expected: Tensor, complaint: str) -> None:
    # sums in another order: float32 rounding of entries of order one
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5), complaint
