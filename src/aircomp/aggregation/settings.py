"""Settings of the aggregate: which rule, and what the mean is formed of."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from aircomp.common.settings import Tagged

Readout = Literal["auto", "integers", "soft", "norm", "unbiased", "calibrated"]
"""What the mean is formed of. `integers`: the decoded counts. `soft`: their posterior means. `norm`: the soft mean,
scaled to the norm of the integers' mean. `unbiased`: the soft mean, lengthened until it is not shrunk. `calibrated`: the
soft mean, with the response of the decoder taken out, as the base station measures it on slots that it simulates (`unbiased`
where a scheme simulates none). `auto`: `unbiased` for the mean, `integers` for every other rule."""


class AggregateSettings(Tagged):
    """How the received messages become one update."""

    TAG: ClassVar[str] = "rule"

    rule: str = "mean"
    """Aggregation rule; `aircomp.aggregator_names()` lists them."""
    readout: Readout = "auto"
    """What the mean is formed of. integers: the decoded counts (the paper's). soft: their posterior means. norm: the
    soft mean, scaled to the norm of the integers' mean. unbiased: the soft mean, lengthened to the length that the
    true mean has on average; it learns fastest at low SNR. auto: integers for amp-da and amp-da-net, as published,
    and for every rule but the mean; otherwise unbiased."""

    @classmethod
    def alternatives(cls) -> Mapping[str, type[Tagged]]:
        """Return the settings of every rule."""
        return {name: TrimmedRule if name in TRIMMED else PlainRule for name in RULES}


class PlainRule(AggregateSettings):
    """Rules with nothing to set."""


class TrimmedRule(AggregateSettings):
    """Rules that leave out what lies far from the rest."""

    keep: float = Field(default=0.8, ge=0.01, le=1)
    """Share of the mass that is kept; 0.8 in the paper."""


RULES = {
    "mean": "rules",
    "majority-vote": "majority",
    "trimmed-mean": "trimmed",
    "coordinate-median": "robust",
    "coordinate-trimmed-mean": "robust",
    "geometric-median": "robust",
    "sign-vote": "majority",
    "length-limit": "own",
    "rarity": "own",
}
"""The file of every rule; the function in it has the rule's name."""
NEED_OWN = ("length-limit", "rarity")
"""Rules that compare with the base station's own fragments."""
TRIMMED = ("trimmed-mean", "coordinate-trimmed-mean")
"""The rules with a share to keep."""
