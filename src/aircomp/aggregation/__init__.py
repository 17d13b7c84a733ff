"""From counts to one update: symmetric aggregation rules.

A rule is any function `(counts [slots, codewords], codewords [codewords, fragment]) -> [slots, fragment]`. Counts hold
no order of devices, so every rule is symmetric by construction (Sec. II-A). They also hold no link between slots: rules
that need a device's whole vector (Krum on the full update, say) cannot be expressed, unless a scheme delivers whole
vectors, which are one slot with one codeword a device.
"""

from aircomp.aggregation.rules import Rule, aggregate, aggregator_names, find_rule

__all__ = ["Rule", "aggregate", "aggregator_names", "find_rule"]
