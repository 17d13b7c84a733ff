"""From counts to one update: symmetric aggregation rules."""
