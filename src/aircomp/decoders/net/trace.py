"""What a network thinks after one of its layers, for whoever looks inside (`aircomp explain`)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.decoders.base import PerCodeword, PerUse


@dataclass(frozen=True)
class NetState:
    """The state of message passing, and what expectation maximisation believes, after a layer."""

    x_hat: PerCodeword
    """Counts."""
    nu: PerCodeword
    """Their variances."""
    z: PerUse
    """Measurement-domain mean."""
    v: PerUse
    """Measurement-domain variance."""
    noise_var: Float[Tensor, " slots"]
    num_active: Float[Tensor, " batches"]
    """Number of devices, of every batch of slots that share it."""
    popularity: Float[Tensor, "batches codewords"]
    """π."""
    rate: Float[Tensor, "batches codewords"]
    """λ, for the next layer."""
    activity: Float[Tensor, "batches codewords"]
    """α."""

    @classmethod
    def join(cls, parts: Sequence["NetState"]) -> "NetState":
        """Put the chunks of a round together."""
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))
