"""From counts to one update: symmetric aggregation rules.

A rule is any function `(counts [slots, codewords], codewords [codewords, fragment]) -> [slots, fragment]`. Counts hold
no order of devices, so every rule is symmetric by construction (Sec. II-A). They also hold no link between slots. So
a rule that needs a device's whole update, such as Krum, works only with schemes that deliver whole vectors: one slot,
with one codeword for each device.
"""
