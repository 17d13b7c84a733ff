"""Metrics, their names and meanings, and what information theory says."""
