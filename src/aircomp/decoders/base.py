"""What a decoder is: received signal and popularity in, counts out, all slots of a round at once."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from numbers import Real
from typing import Protocol, TypedDict, Unpack, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.boundary import ask, check_returned
from aircomp.common.checks import check_type
from aircomp.common.tensors import all_finite
from aircomp.common.threads import whole_cores
from aircomp.errors import ConfigError, ShapeError

MAX_DEVICES = 100_000
"""No decoder looks for more devices: counts of so many are exact in float32, and their squares far from overflowing."""

MIN_NUM_ACTIVE = 1e-3
"""A given number of devices below this means that nobody sent."""


PerCodeword = Float[Tensor, "slots codewords"]
"""A number for every codeword of every slot."""
PerUse = Float[Tensor, "slots uses"]
"""A number for every channel use of every slot."""


@dataclass(frozen=True)
class Decoded:
    """What the base station knows of a round after decoding."""

    counts: Int[Tensor, "slots codewords"]
    """Integers; every row sums to `num_active`."""
    mean: Float[Tensor, "slots codewords"]
    """Posterior mean before rounding (soft counts)."""
    num_active_hat: float
    """Estimated number of active devices before rounding."""
    noise_var: Float[Tensor, " slots"]
    """Noise variance per channel use, estimated or as given, for every slot."""
    num_active_error: float | None = None
    """Standard error of `num_active_hat`, zero if the number was given; None where the decoder knows none."""

    def __repr__(self) -> str:
        """Say in a line how much was decoded; the fields hold the tensors."""
        shape = " × ".join(map(str, self.counts.shape))
        return f"<Decoded: counts of {shape} slots and codewords, {self.num_active_hat:.4g} devices estimated>"

    @property
    def num_active(self) -> int:
        """The number of active devices that the counts sum to."""
        return max(0, round(self.num_active_hat))


class Known(TypedDict, total=False):
    """What a decoder may be given besides the signal and the popularity; `Observation` says what each is."""

    num_active: float | None
    noise_var: float | Float[Tensor, " slots"] | None
    bs_indices: Int[Tensor, " slots"] | None
    slot_layers: Int[Tensor, " slots"] | None
    quant_codebook: Float[Tensor, "codewords fragment"] | None


@dataclass(frozen=True)
class Observation:
    """All that the base station has when it decodes a round."""

    received: Float[Tensor, "slots uses"]
    """What the antenna saw, one slot a row."""
    popularity: Float[Tensor, " codewords"]
    """The base station's estimate of how often each codeword is chosen."""
    num_active: float | None = None
    """Number of active devices, estimated from `received` if not given."""
    noise_var: float | Float[Tensor, " slots"] | None = None
    """Noise variance per channel use, one or one per slot, estimated if not given."""
    bs_indices: Int[Tensor, " slots"] | None = None
    """The base station's own codeword of each slot (side information)."""
    slot_layers: Int[Tensor, " slots"] | None = None
    """The parameter tensor each slot belongs to (side information)."""
    quant_codebook: Float[Tensor, "codewords fragment"] | None = None
    """What each codeword stands for: how much it costs to take one for another. None of our decoders weighs errors so."""


@runtime_checkable
class Decoder(Protocol):
    """Anything with this method decodes, a user's own object too; ours are `BaseDecoder`s."""

    def decode(
        self, received: Float[Tensor, "slots uses"], popularity: Float[Tensor, " codewords"], **known: Unpack[Known]
    ) -> Decoded:
        """Estimate the counts of every slot, whatever the antenna saw: every finite signal has a finite result.

        Args:
            received: What the antenna saw, one slot a row.
            popularity: The base station's estimate of how often each codeword is chosen.
            **known: What else is known of the round, each of it optional; see `Observation`.
        """
        ...


class BaseDecoder(ABC):
    """A decoder that is written as one method, `infer`; `decode` is the same for all."""

    passes: int | None = None
    """How often it goes over the codebook at most, with four products in each pass; None: it cannot tell."""
    convolutions: int = 0
    """Other products of numbers in a slot."""

    @torch.no_grad()
    @whole_cores()
    def decode(
        self, received: Float[Tensor, "slots uses"], popularity: Float[Tensor, " codewords"], **known: Unpack[Known]
    ) -> Decoded:
        """Estimate the counts of every slot; see `Decoder.decode`."""
        return self.infer(Observation(received, popularity, **known))

    @abstractmethod
    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot from all that is known; called without gradients."""


def run_decoder(
    decoder: Decoder,
    received: Float[Tensor, "slots uses"],
    popularity: Float[Tensor, " codewords"],
    **known: Unpack[Known],
) -> Decoded:
    """Decode, and check what a decoder of the user's own returns.

    Raises:
        AirCompError: If that raises, writes into what it was given, or returns something else than a `Decoded`.
    """
    decoded = ask(decoder.decode, received, popularity, **known)
    check_type("what the decoder returned", decoded, Decoded, "an aircomp.Decoded")
    sizes = {"slots": len(received), "codewords": len(popularity)}
    check_returned(decoder.decode, decoded, Decoded, sizes, [field.name for field in fields(Decoded)])
    return decoded


def check_received(received: Tensor, popularity: Tensor, codebook: Tensor) -> Tensor:
    """Check the arguments of a decoder and return the popularity as a distribution.

    Raises:
        ShapeError: If shapes do not fit, the signal is not finite, or the popularity is not non-negative and finite
            with a positive sum. A sum other than one is rescaled; zeros are kept, each decoder floors as it needs.
    """
    n, l = codebook.shape  # noqa: E741
    if not isinstance(received, Tensor) or received.dtype not in (torch.float32, torch.float64):
        raise ShapeError(f"received is {_kind(received)}; expected float32 or float64 [slots, {l}]")
    if received.ndim != 2 or received.shape[1] != l:
        raise ShapeError(f"received has shape {tuple(received.shape)}; expected [slots, {l}] for this codebook")
    if not all_finite(received):
        raise ShapeError("received holds values that are not finite; check the channel before decoding")
    return check_popularity(popularity, n)


def check_popularity(popularity: Tensor, num_codewords: int) -> Tensor:
    """Check a popularity and return it as a distribution.

    Raises:
        ShapeError: If it is not non-negative and finite with a positive sum.
    """
    n = num_codewords
    if not isinstance(popularity, Tensor) or popularity.is_complex():
        raise ShapeError(f"popularity is {_kind(popularity)}; expected real numbers [{n}]")
    if popularity.shape != (n,):
        raise ShapeError(f"popularity has shape {tuple(popularity.shape)}; expected [{n}] for this codebook")
    if not torch.isfinite(popularity).all() or (popularity < 0).any() or not popularity.any():
        raise ShapeError("popularity is not a distribution: expected finite, non-negative entries with a positive sum")
    if not torch.isfinite(popularity.sum()):
        popularity = popularity / popularity.max()
    return popularity / popularity.sum()


def _kind(given: object) -> str:
    return str(given.dtype) if isinstance(given, Tensor) else type(given).__name__


def check_num_active(num_active: float) -> None:
    """Check a given number of devices.

    Raises:
        ConfigError: If it is negative, not finite, or above `MAX_DEVICES`.
    """
    expected = f"expected 0 to {MAX_DEVICES} devices, or None to estimate them"
    if not isinstance(num_active, Real):
        raise ConfigError(f"num_active is a {type(num_active).__name__}; {expected}")
    if not 0 <= num_active <= MAX_DEVICES:
        raise ConfigError(f"num_active is {num_active}; {expected}")


def check_codebook(codebook: Tensor, *, unit_norm: bool = True) -> Tensor:
    """Check that a random-access codebook is a finite matrix with unit-norm rows, or with rows of any energy but zero.

    Raises:
        ShapeError: If it is not; the tolerance is what float32 rounding of a normalised row can reach.
    """
    if not isinstance(codebook, Tensor) or not codebook.is_floating_point():
        raise ShapeError(f"codebook is {_kind(codebook)}; expected a real matrix [codewords, uses]")
    if codebook.ndim != 2 or codebook.numel() == 0:
        raise ShapeError(f"codebook has shape {tuple(codebook.shape)}; expected a real matrix [codewords, uses]")
    if not torch.isfinite(codebook).all():
        raise ShapeError("codebook holds values that are not finite")
    lengths = codebook.norm(dim=1)
    if not lengths.all():
        raise ShapeError(
            "codebook has a row of zeros, which nobody could hear; expected an energy above zero in every row"
        )
    if unit_norm:
        check_unit_norm(codebook)
    return codebook


def check_unit_norm(codebook: Tensor) -> None:
    """See that every row has unit norm, to what float32 rounding of a normalised row can reach.

    Raises:
        ShapeError: If one has not.
    """
    worst = (codebook.norm(dim=1) - 1).abs().max().item()
    if not worst <= 1e-4:  # NaN fails
        raise ShapeError(f"codebook rows must have unit norm; one is off by {worst:.3g}: divide each row by its norm")


def check_groups(groups: Tensor, num_slots: int, name: str = "side information") -> None:
    """See that there is a group for every slot.

    Raises:
        ShapeError: If there is not.
    """
    expected = f"expected one non-negative integer for each of {num_slots} slots"
    if not isinstance(groups, Tensor):
        raise ShapeError(f"{name} is {type(groups).__name__}; {expected}")
    if groups.shape != (num_slots,) or groups.is_floating_point() or groups.is_complex():
        raise ShapeError(f"{name} has shape {tuple(groups.shape)} and type {groups.dtype}; {expected}")
    if groups.numel() and int(groups.min()) < 0:
        raise ShapeError(f"{name} holds {int(groups.min())}; {expected}")
