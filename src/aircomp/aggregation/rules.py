"""The rules by name, the one function that applies a rule, named or the user's own, and the mean, which is FedAvg's."""

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Float, Real
from torch import Tensor

from aircomp.aggregation.settings import NEED_OWN, RULES
from aircomp.common.boundary import ask, check_returned
from aircomp.common.checks import check_callable
from aircomp.common.tensors import check_tensor
from aircomp.errors import ConfigError, ShapeError, unknown_name

Rule = Callable[..., Tensor]
"""`(counts [slots, codewords], codewords [codewords, fragment], **options) -> [slots, fragment]`."""

_TAKES_SOFT_COUNTS = {"mean"}


def aggregator_names() -> list[str]:
    """Return the names that `aggregate` knows."""
    return list(RULES)


def aggregate(
    rule: str | Rule,
    counts: Real[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    **options: Any,  # each rule's own keyword arguments
) -> Float[Tensor, "slots fragment"]:
    """Turn the counts of all slots into one aggregated fragment a slot.

    The number of devices is read from the counts, slot by slot; a slot without any gives zero.

    >>> counts = torch.tensor([[3, 1, 0]])
    >>> codewords = torch.tensor([[1.0, 0.0], [5.0, 4.0], [9.0, 9.0]])
    >>> aggregate("mean", counts, codewords)
    tensor([[2., 1.]])
    >>> aggregate("majority-vote", counts, codewords)
    tensor([[1., 0.]])

    Args:
        rule: A name from `aggregator_names()`, or a function with the form of a `Rule`.
        counts: How many devices chose each codeword. `mean` and a user's own function also take soft counts, the others
            whole numbers (of any dtype).
        codewords: What each codeword stands for, one a row: the quantisation codebook.
        **options: Passed to the rule, such as `keep=0.8` for `trimmed-mean`, or the base station's fragments as `own`.

    Raises:
        ConfigError: If there is no such rule or option, or the option's value cannot be used.
        ShapeError: If the tensors do not fit each other or the rule.
    """
    function = find_rule(rule, **options)
    _check(counts, codewords)
    if isinstance(rule, str) and rule not in _TAKES_SOFT_COUNTS:
        _check_whole(rule, counts)
    if takes_own(rule):
        _check_own(rule, options.get("own"), counts, codewords)
    result = ask(function, counts, codewords)
    sizes = {"slots": counts.shape[0], "fragment": codewords.shape[1]}
    check_returned(function, result, Float[Tensor, "slots fragment"], sizes)
    return result


def takes_own(rule: str | Rule) -> bool:
    """Tell whether a rule compares with the base station's own fragments: a function does that has a parameter `own`."""
    if isinstance(rule, str):
        return rule in NEED_OWN
    try:
        return "own" in inspect.signature(rule).parameters
    except ValueError:
        return False


def find_rule(rule: str | Rule, **options: Any) -> Rule:
    """Return the rule with its options bound. Called before a run, it refuses a wrong name early.

    Raises:
        ConfigError: If there is no such rule, or the rule has no such option.
    """
    if not isinstance(rule, str):
        check_callable("rule", rule, f"of (counts, codewords), or one of {', '.join(RULES)}")
        _check_signature(rule, options)
        return partial(rule, **options)
    if rule not in RULES:
        raise unknown_name("aggregation rule", rule, RULES)
    module = import_module(f"aircomp.aggregation.{RULES[rule]}")
    function: Rule = getattr(module, rule.replace("-", "_"))
    known = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in options:
        if not known:
            raise ConfigError(f"the aggregation rule {rule!r} has no options; leave out {name!r}")
        if name not in known:
            raise unknown_name(f"option of the aggregation rule {rule!r} called", name, known)
    return partial(function, **options)


def _check_signature(rule: Rule, options: dict[str, Any]) -> None:
    """Refuse a user's own rule that cannot be called with (counts, codewords)."""
    try:
        signature = inspect.signature(rule)
    except ValueError:  # some built-in functions tell none
        return
    try:
        signature.bind(None, None, **options)
    except TypeError as error:
        name = getattr(rule, "__name__", type(rule).__name__)
        form = ", ".join(["counts", "codewords", *options])
        raise ConfigError(f"rule is {name}{signature}: {error}; expected a function of ({form})") from None


def _check(counts: Tensor, codewords: Tensor) -> None:
    check_tensor("counts", counts, "slots codewords")
    check_tensor("codewords", codewords, "codewords fragment", "floating")
    if counts.shape[1] != codewords.shape[0] or counts.shape[1] == 0:
        raise ShapeError(
            f"counts has shape {tuple(counts.shape)} and codewords {tuple(codewords.shape)}; "
            "expected [slots, codewords] and [codewords, fragment]"
        )
    if counts.device != codewords.device:
        raise ShapeError(f"counts is on {counts.device} and codewords on {codewords.device}; move them together")
    if counts.numel():
        low, high = counts.aminmax()
        if not (low >= 0 and high < torch.inf):  # NaN fails both
            raise ShapeError("counts holds negative or non-finite entries; expected how often each codeword was chosen")


def _check_own(rule: str | Rule, own: Any, counts: Tensor, codewords: Tensor) -> None:
    if own is None:
        name = rule if isinstance(rule, str) else getattr(rule, "__name__", type(rule).__name__)
        raise ConfigError(f"the aggregation rule {name!r} was given no own; pass the base station's own fragments")
    check_tensor("own", own, "slots fragment", "floating")
    if own.shape != (len(counts), codewords.shape[1]):
        raise ShapeError(
            f"own has shape {tuple(own.shape)}; expected {(len(counts), codewords.shape[1])}, a fragment for every slot"
        )


def _check_whole(rule: str, counts: Tensor) -> None:
    if counts.is_floating_point() and not (counts == counts.round()).all():
        raise ShapeError(
            f"counts holds fractions, which {rule!r} cannot use; pass the decoded counts, not their mean, or use 'mean'"
        )


def mean(
    counts: Real[Tensor, "slots codewords"], codewords: Float[Tensor, "codewords fragment"]
) -> Float[Tensor, "slots fragment"]:
    r"""Average the codewords by their counts, $\hat u_i = \sum_j \hat x_{ij}\, q_j / \sum_j \hat x_{ij}$.

    Soft counts are welcome; they are divided by their own sum.
    """
    counts = counts.to(codewords.dtype)
    mass = counts.sum(dim=1, keepdim=True)
    return counts @ codewords / mass.where(mass > 0, 1)  # an empty slot has a zero numerator already
