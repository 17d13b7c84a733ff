"""The real Gaussian multiple-access channel: codewords add up in the air, then the receiver's noise joins (Sec. III-B).

counts [slots, codewords] ──► superpose ──► signal [slots, uses] ──► add_noise ──► received [slots, uses]
"""

from dataclasses import dataclass
from typing import Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Float, Real
from torch import Tensor

from aircomp.channel.snr import LOWEST_SNR_DB, SnrReference, noise_variance
from aircomp.common.checks import check_choice, check_generator, check_number, check_tensor
from aircomp.errors import ShapeError

# torch fills normal numbers on the CPU in blocks of this many; whole blocks per slot make a slot's noise
# the same whether the slots of a round are drawn at once or in pieces
_DRAW_BLOCK = 16
MOST_DEVICES = 1e9
"""More are a mistake: the noise under `transmit` would not be finite."""


@runtime_checkable
class Channel(Protocol):
    """Anything with this method is a channel.

    It receives what the antenna would see without impairments, the sum of all devices' codewords, and returns what it
    does see. A channel with a different gain for every device (fading, timing) needs the devices apart and belongs
    into an uplink's own `transmit`.
    """

    def transmit(
        self, signal: Float[Tensor, "slots uses"], *, num_active: int, rng: torch.Generator
    ) -> Float[Tensor, "slots uses"]:
        """Return the received signal of all slots of a round.

        Args:
            signal: Superposed codewords, one slot a row.
            num_active: Devices that transmit in this round; only for setting the noise, never told to the receiver.
            rng: Where every random number of this call comes from.
        """
        ...


@dataclass(frozen=True)
class Awgn:
    """The paper's channel: white Gaussian noise at a given SNR.

    >>> import torch
    >>> signal = torch.ones(3, 4)
    >>> received = Awgn(float("inf")).transmit(signal, num_active=1, rng=torch.Generator())
    >>> bool((received == signal).all())
    True
    """

    snr_db: float
    reference: SnrReference = "round"
    codeword_energy: float = 1.0
    """Energy a device spends in a slot; sets the noise under `transmit` only."""

    def transmit(
        self, signal: Float[Tensor, "slots uses"], *, num_active: int, rng: torch.Generator
    ) -> Float[Tensor, "slots uses"]:
        """Add the noise that the SNR asks for."""
        noise_var = noise_variance(
            signal, self.snr_db, self.reference, num_active=num_active, codeword_energy=self.codeword_energy
        )
        return add_noise(signal, noise_var, rng=rng)


def superpose(
    counts: Real[Tensor, "slots codewords"], codebook: Float[Tensor, "codewords uses"]
) -> Float[Tensor, "slots uses"]:
    """Return what the air adds up: each codeword as often as devices sent it (Sec. III-B).

    Raises:
        ShapeError: If counts and codebook do not fit, or a count is negative or not finite.
    """
    if counts.ndim != 2 or codebook.ndim != 2 or counts.shape[1] != codebook.shape[0]:
        raise ShapeError(
            f"counts has shape {tuple(counts.shape)} and codebook {tuple(codebook.shape)}; "
            "expected [slots, codewords] and [codewords, uses]"
        )
    if counts.numel():
        low, high = counts.aminmax()
        if not (low >= 0 and high < torch.inf):  # NaN fails both
            raise ShapeError("counts holds negative or non-finite entries; expected how often each codeword was sent")
    return counts.to(codebook.dtype) @ codebook


def add_noise(
    signal: Float[Tensor, "slots uses"], noise_var: Float[Tensor, " slots"], *, rng: torch.Generator
) -> Float[Tensor, "slots uses"]:
    """Add white Gaussian noise of the given variance per real use, one variance a slot.

    The numbers are drawn on the generator's device, so a CPU generator gives the same noise wherever the signal lives,
    and they depend on neither signal nor variance: two calls with equally seeded generators meet the same noise up to
    its scale.
    """
    slots, uses = signal.shape
    drawn = -(-uses // _DRAW_BLOCK) * _DRAW_BLOCK
    noise = torch.randn(slots, drawn, generator=rng, device=rng.device, dtype=signal.dtype)[:, :uses]
    return signal + noise_var.sqrt()[:, None] * noise.to(signal.device)


def transmit(
    counts: Real[Tensor, "slots codewords"],
    codebook: Float[Tensor, "codewords uses"],
    *,
    snr_db: float,
    reference: SnrReference = "round",
    rng: torch.Generator,
    num_active: int | None = None,
) -> Float[Tensor, "slots uses"]:
    """Superpose the codewords of all slots of a round and add noise.

    Args:
        counts: How many devices sent each codeword in each slot.
        codebook: The random-access codebook, one codeword a row.
        snr_db: Signal-to-noise ratio in decibels, `inf` for no noise.
        reference: What the SNR refers to: `round`, `slot` or `transmit` (see `aircomp.channel.snr`).
        rng: Where the noise comes from.
        num_active: Devices that transmit, for `transmit`; the largest number of codewords in any slot if not given.

    Raises:
        ShapeError: If counts and codebook do not fit or are not finite.
        ConfigError: If the SNR or its reference cannot be used.
    """
    check_tensor("counts", counts, "slots codewords")
    check_tensor("codebook", codebook, "codewords uses", "floating")
    check_number("snr_db", snr_db, low=LOWEST_SNR_DB)
    check_choice("reference", reference, get_args(SnrReference))
    check_generator("rng", rng)
    if num_active is not None:
        check_number("num_active", num_active, low=0, high=MOST_DEVICES)
    signal = superpose(counts, codebook)
    if num_active is None:
        num_active = round(counts.sum(dim=1).max().item()) if counts.shape[0] else 0
    # the mean over codewords, one for a unit-norm codebook: what a device spends must not depend on what it sends
    codeword_energy = codebook.square().sum(dim=1).mean().item()
    return Awgn(snr_db, reference, codeword_energy).transmit(signal, num_active=num_active, rng=rng)
