"""Schemes beside each other at equal channel uses and energy."""
