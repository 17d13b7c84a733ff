"""Decoders behind gains that are not one: several antennas, coherence blocks, gains known or unknown."""
