"""The Gaussian multiple-access channel: signals add up in the air, then the receiver's noise joins (Sec. III-B).

signal ──► superpose under the gains ──► [antennas, slots, uses] ──► add_noise ──► received
"""

from dataclasses import dataclass
from typing import get_args

import torch
from jaxtyping import Float, Inexact, Real
from torch import Tensor

from aircomp.channel.base import AtDevices, ChannelFacts, Csi
from aircomp.channel.settings import LOWEST_SNR_DB
from aircomp.channel.signal import Signal
from aircomp.channel.snr import noise_variance
from aircomp.common.checks import check_choice, check_number
from aircomp.common.snr import SnrReference
from aircomp.common.tensors import check_generator, check_tensor
from aircomp.errors import ShapeError

# torch fills normal numbers on the CPU in blocks of this many; whole blocks per slot make a slot's noise
# the same whether the slots of a round are drawn at once or in pieces
_DRAW_BLOCK = 16
MOST_DEVICES = 1e9
"""More are a mistake: the noise under `transmit` would not be finite."""


@dataclass(frozen=True)
class Awgn:
    """The paper's channel: gains of one, and white Gaussian noise at a given SNR.

    A channel of your own that only adds to this one inherits it and extends `carry`.
    """

    snr_db: float
    reference: SnrReference = "round"
    """What the SNR refers to: the mean received power of the `round`, that of each `slot`, or the `transmit` power."""

    def __post_init__(self) -> None:
        check_number("snr_db", self.snr_db, low=LOWEST_SNR_DB)
        check_choice("reference", self.reference, get_args(SnrReference))

    @property
    def facts(self) -> ChannelFacts:
        """What a link must know of it."""
        return ChannelFacts(snr_reference=self.reference)

    def sound(self, num_devices: int, num_uses: int, *, rng: torch.Generator) -> Csi:
        """Let everybody send at nominal power, with the share of a device in the SNR of all."""
        alone = 10.0 ** (self.snr_db / 10) / max(num_devices, 1)
        snr = torch.full((num_devices, 1), alone)
        return Csi(AtDevices(num_devices, snr=snr, over_noise=snr.sqrt()[:, :, None]))

    def carry(self, signal: Signal, csi: Csi, *, rng: torch.Generator) -> Inexact[Tensor, "antennas slots uses"]:
        """Add the signals up, and to each antenna the noise that the SNR asks for."""
        clean = signal.superpose(csi.with_power)
        num_active = csi.at_devices.num_devices
        noise_var = [
            noise_variance(heard, self.snr_db, self.reference, num_active=num_active, power=signal.power)
            for heard in clean
        ]
        return torch.stack([self._heard(heard, var, rng) for heard, var in zip(clean, noise_var, strict=True)])

    def _heard(self, clean: Tensor, noise_var: Tensor, rng: torch.Generator) -> Inexact[Tensor, "slots uses"]:
        """Return what one antenna hears."""
        return add_noise(clean, noise_var, rng=rng)


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
    signal: Inexact[Tensor, "slots uses"], noise_var: Float[Tensor, " slots"], *, rng: torch.Generator
) -> Inexact[Tensor, "slots uses"]:
    """Add white Gaussian noise of the given variance per channel use, one variance a slot.

    A complex use has half of it in each part.

    The numbers are drawn on the generator's device, so a CPU generator gives the same noise wherever the signal lives,
    and they depend on neither signal nor variance: two calls with equally seeded generators meet the same noise up to
    its scale.
    """
    slots, uses = signal.shape
    if signal.is_complex():
        parts = torch.view_as_real(signal).flatten(1)
        return torch.view_as_complex(add_noise(parts, noise_var / 2, rng=rng).view(slots, uses, 2))
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
    power = codebook.square().sum(dim=1).mean().item() / codebook.shape[1]
    return add_noise(signal, noise_variance(signal, snr_db, reference, num_active=num_active, power=power), rng=rng)
