"""What an uplink can offer to the base station, and which aggregation rules each form serves.

Counts    a multiset of codewords for each slot: every symmetric rule, slot by slot
Vectors   every device's whole update: every rule
Mean      what was added up in the air: the mean alone
Vote      the sign of every parameter: sign-vote alone
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.aggregation.rules import Rule, aggregate, takes_own
from aircomp.aggregation.settings import TRIMMED, Readout
from aircomp.errors import ConfigError
from aircomp.quantize.fragment import join, num_slots, put_slots, split, take_slots


@dataclass(frozen=True, kw_only=True)
class _Output:
    num_active_hat: float | None = None
    """The number of devices, as the base station estimates it or is told; None: it knows nothing of it."""
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    """What the receiver noticed beside it, for the record of the round."""


@dataclass(frozen=True, kw_only=True)
class Counts(_Output):
    """How many devices sent each codeword in each slot."""

    counts: Int[Tensor, "slots codewords"]
    codewords: Float[Tensor, "codewords fragment"]
    """What each codeword stands for."""
    num_params: int
    soft_counts: Float[Tensor, "slots codewords"] | None = None
    """Posterior mean of the counts, where a decoder is unsure of them."""
    asked: Int[Tensor, " slots"] | None = None
    """The slots of the update that the rows of `counts` belong to; it is zero in all others. None means all."""
    own: Int[Tensor, "slots codewords"] | None = None
    """The base station's own choices, where they join the aggregate; known exactly."""
    scales: Float[Tensor, " slots"] | None = None
    """What the codewords of each row are multiplied by; None: one."""
    rehearse: Callable[[], tuple[Float[Tensor, "some codewords"], Float[Tensor, "some codewords"]] | None] | None = None
    """Simulates slots as the base station expects them; returns their counts, and their soft counts as decoded. It gives None
    if nobody sent. A scheme that simulates none has no such function."""

    served = None

    def aggregate(
        self, rule: str | Rule, keep: float, readout: Readout, base: Float[Tensor, " params"] | None
    ) -> Float[Tensor, " params"]:
        """Aggregate slot by slot."""
        own = 0 if self.own is None else self.own
        fragments = _aggregate(rule, self.counts + own, self.codewords, keep, self._fragments(base))
        if readout != "integers" and self.soft_counts is not None:
            fragments = self._read_out(self.soft_counts, fragments, readout)
        if self.scales is not None:
            fragments = fragments * self.scales[:, None].to(fragments)
        slots = num_slots(self.num_params, self.codewords.shape[1])
        return join(put_slots(fragments, self.asked, slots), self.num_params)

    def _read_out(
        self,
        soft_counts: Float[Tensor, "slots codewords"],
        of_integers: Float[Tensor, "slots fragment"],
        readout: Readout,
    ) -> Float[Tensor, "slots fragment"]:
        """Form the mean of soft counts."""
        from aircomp.aggregation.readout import soft_mean  # integers need none of it

        rehearsed = self.rehearse() if readout == "calibrated" and self.rehearse is not None else None
        if rehearsed is not None:
            return self._calibrated(soft_counts, *rehearsed)
        own = 0 if self.own is None else self.own
        spoken, soft = (self.counts + own).any(1), soft_counts + own
        if spoken.all() or not spoken.any():
            return soft_mean(soft, self.codewords, of_integers, readout)
        # blocks in which nobody spoke tell nothing of the number of devices, nor of their length
        of_integers[spoken] = soft_mean(soft[spoken], self.codewords, of_integers[spoken], readout)
        return of_integers

    def _fragments(self, base: Float[Tensor, " params"] | None) -> Float[Tensor, "slots fragment"] | None:
        """Return the base station's own fragments, in the order and the units of the rows of counts."""
        if base is None:
            return None
        fragments = take_slots(split(base, self.codewords.shape[1])[None], self.asked)[0].to(self.codewords)
        return fragments if self.scales is None else fragments / self.scales[:, None].to(fragments).clamp(min=1e-30)

    def _calibrated(
        self,
        soft_counts: Float[Tensor, "slots codewords"],
        counts: Float[Tensor, "some codewords"],
        heard: Float[Tensor, "some codewords"],
    ) -> Float[Tensor, "slots fragment"]:
        """Return the mean with the decoder's response on simulated slots taken out; the base station's own joins after it."""
        from aircomp.aggregation.readout import as_decoded, calibrated

        words = self.codewords
        mean = calibrated(as_decoded(soft_counts, words), as_decoded(heard, words), as_decoded(counts, words))
        if self.own is None:
            return mean
        devices = float(soft_counts.sum(1).double().mean())
        return (devices * mean + self.own.to(words) @ words) / (devices + 1)


@dataclass(frozen=True, kw_only=True)
class Vectors(_Output):
    """Every device's update, whole."""

    vectors: Float[Tensor, "devices params"]

    served = None

    def aggregate(
        self, rule: str | Rule, keep: float, readout: Readout, base: Float[Tensor, " params"] | None
    ) -> Float[Tensor, " params"]:
        """Aggregate them: one slot, in which each is a codeword that was sent once."""
        counts = torch.ones(1, len(self.vectors), dtype=torch.int64, device=self.vectors.device)
        return _aggregate(rule, counts, self.vectors, keep, None if base is None else base[None].to(self.vectors))[0]


@dataclass(frozen=True, kw_only=True)
class Mean(_Output):
    """The mean of the updates, as the air added them up."""

    mean: Float[Tensor, " params"]
    soft: Float[Tensor, " params"] | None = None
    """Posterior mean of it, where a scheme has a prior: the readout `soft`. None: the mean has one readout."""

    served = "mean"


@dataclass(frozen=True, kw_only=True)
class Vote(_Output):
    """The sign of every parameter that most devices voted for."""

    signs: Float[Tensor, " params"]
    """Zero where nobody voted."""
    size: float
    """The step of every parameter, which a vote does not tell."""

    served = "sign-vote"


Output = Counts | Vectors | Mean | Vote


def _aggregate(rule: str | Rule, counts: Tensor, codewords: Tensor, keep: float, own: Tensor | None) -> Tensor:
    options: dict[str, Any] = {"keep": keep} if rule in TRIMMED else {}  # Any: each rule has its own
    options |= {"own": own} if takes_own(rule) else {}
    return aggregate(rule, counts, codewords, **options)


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


def check_rule(offers: type[Output], rule: str | Rule, readout: Readout = "auto") -> None:
    """Refuse a rule that an uplink's output cannot serve, before anything is trained.

    Args:
        offers: What the uplink offers.
        rule: An aggregation rule's name, or a function of (counts, codewords).
        readout: What the mean is formed of.

    Raises:
        ConfigError: If it cannot: a mean cannot be trimmed, a vote has no size.
    """
    check_readout(rule, readout)
    if offers.served is not None and rule != offers.served:
        raise ConfigError(
            f"the aggregation rule {rule!r} was given, but this uplink offers a {offers.__name__.lower()}, which serves the "
            f"rule {offers.served!r} alone; use that, or another uplink"
        )


def aggregate_output(
    output: Output,
    rule: str | Rule,
    *,
    keep: float = 0.8,
    readout: Readout = "auto",
    base: Float[Tensor, " params"] | None = None,
) -> Float[Tensor, " params"]:
    """Turn what was received into one update.

    Args:
        output: What the base station holds.
        rule: An aggregation rule's name, or a function of (counts, codewords).
        keep: Share of the mass that the trimmed means keep.
        readout: What the mean is formed of; counts without a soft form are exact, and all readouts then the same. `auto`
            is the unbiased one for the mean and integers for every other rule.
        base: The base station's own update, for rules that compare with it.

    Raises:
        ConfigError: If the output cannot serve the rule.
    """
    check_rule(type(output), rule, readout)
    match output:
        case Mean():
            return output.soft if readout == "soft" and output.soft is not None else output.mean
        case Vote():
            return output.size * output.signs
        case _:
            return output.aggregate(rule, keep, chosen_readout(rule, readout), base)
