"""aircomp: digital over-the-air computation for federated edge learning."""

__version__ = "0.1.0"
