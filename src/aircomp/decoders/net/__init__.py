"""Unrolled networks: the AMP-DA-Net of the paper, and our GAMP-Net."""
