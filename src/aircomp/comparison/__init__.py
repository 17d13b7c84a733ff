"""Comparisons of schemes at equal channel uses and energy, and sweeps over settings."""
