"""Analog transmission that modulo stages refine: `scheme` is the scheme, the other files are its parts."""
