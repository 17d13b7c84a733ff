"""What the networks have in common: how they become decoders, and what they think after one of their layers."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common.radio import SnrReference
from aircomp.decoders.base import BaseDecoder, PerCodeword, PerUse
from aircomp.decoders.settings import AmpDaNetSettings, GampNetSettings


class Moments(NamedTuple):
    """Moments of x given R, and the probability that the codeword was sent at all."""

    mean: Float[Tensor, "slots codewords"]
    var: Float[Tensor, "slots codewords"]
    activity: Float[Tensor, "slots codewords"]


@dataclass(frozen=True)
class NetState:
    """The state of message passing, and what expectation maximisation believes, after a layer: for whoever looks inside."""

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


class NetDecoder(BaseDecoder):
    """A network with its codebook, as a decoder."""

    @abstractmethod
    def trace(self, received: Float[Tensor, "slots uses"], popularity: Float[Tensor, " codewords"]) -> list[NetState]:
        """Return what the network thinks of every slot after each of its layers."""


class Net(nn.Module):
    """An unrolled decoder. It holds no codebook: that is trained, stored and checked beside it."""

    settings: AmpDaNetSettings | GampNetSettings

    @abstractmethod
    def decoder(
        self,
        codebook: Float[Tensor, "codewords uses"],
        *,
        snr_reference: SnrReference,
        trained_for: tuple[int, int] | None = None,
    ) -> NetDecoder:
        """Return the decoder of a codebook.

        Args:
            codebook: The one that the network was trained with.
            snr_reference: Whether the noise variance is one for the round, or follows the power of each `slot`.
            trained_for: Fewest and most active devices of the training rounds, if known.
        """


def make_net(settings: AmpDaNetSettings | GampNetSettings) -> Net:
    """Build the network of a form, with its first weights; no other is imported."""
    if isinstance(settings, GampNetSettings):
        from aircomp.decoders.net.gamp_net import GampNet

        return GampNet(settings)
    from aircomp.decoders.net.amp_da_net import AmpDaNet

    return AmpDaNet(settings)
