"""Settings of the quantiser."""

from typing import Literal

from pydantic import Field

from aircomp.common.settings import Settings


class FragmentSettings(Settings):
    """How updates are cut into fragments, one for every slot of the digital link."""

    fragment_length: int = Field(default=20, ge=1, le=65_536)
    """Entries of one fragment (paper: d = 20)."""


class QuantizeSettings(FragmentSettings):
    """How updates become codeword indices."""

    num_codewords: int = Field(default=128, ge=2, le=32767)
    """Size of the codebook (paper: n = 128); indices are stored in 16 bits at most."""
    order: Literal["popularity", "none", "cosine"] = "popularity"
    """Order of the codewords: most popular first, as the seeding found them, or similar directions side by side."""
    lloyd_iterations: int = Field(default=0, ge=0, le=10_000)
    """Refinements after k-means++. More fit the base station's data, not the devices' (paper: none)."""
    curvature_aware: bool = False
    """Cluster in a space where directions of low variance weigh more."""
