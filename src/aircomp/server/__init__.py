"""The global step."""
