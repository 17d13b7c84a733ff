r"""The Gaussian multiple-access channel: signals add up in the air, then the receiver's noise joins (Sec. III-B).

signal ──► superpose under the gains ──► [antennas, slots, uses] ──► add_noise ──► received

Here is the only definition of the signal-to-noise ratio.

The paper takes SNR as total received signal power over noise power (Sec. IV), which leaves open over what the
signal power is averaged. With $s_{i,m}$ the superposed, noiseless signal in slot $i$ and use $m$, $J$ slots of $l$
real uses, and $\Gamma = 10^{\mathrm{SNR}/10}$, the noise variance per real use is

| reference  | noise variance                                        | for                                      |
|------------|-------------------------------------------------------|------------------------------------------|
| `round`    | $\sum_{i,m} s_{i,m}^2 / (J l\,\Gamma)$, one for all   | the default: a receiver has one noise    |
| `slot`     | $\sum_m s_{i,m}^2 / (l\,\Gamma)$, one per slot        | comparing with the paper's released code |
| `transmit` | $K_a\, p / \Gamma$, whatever was sent                 | comparing schemes with each other        |

where $p$ is what one device spends per real use on average: a codeword of energy $E$ over $l$ uses has $p = E/l$.
Under `slot`, devices that collide raise the noise of their own slot, which no physical receiver does.

A complex signal enters with $|s|^2$ in place of $s^2$; the variance is then that of one complex use, half of it in each part.
"""

import math
from dataclasses import dataclass
from typing import get_args

import torch
from jaxtyping import Float, Inexact, Real
from torch import Tensor

from aircomp.channel.base import AtDevices, ChannelFacts, Csi
from aircomp.channel.settings import LOWEST_SNR_DB
from aircomp.channel.signal import Signal
from aircomp.common.checks import check_choice, check_number
from aircomp.common.radio import SnrReference
from aircomp.common.tensors import check_generator, check_tensor
from aircomp.errors import ConfigError, ShapeError, unknown_name

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
        reference: What the SNR refers to: `round`, `slot` or `transmit` (see `noise_variance`).
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


def noise_variance(
    signal: Inexact[Tensor, "slots uses"],
    snr_db: float,
    reference: SnrReference,
    *,
    num_active: int,
    power: float | None = None,
) -> Float[Tensor, " slots"]:
    """Return the noise variance per channel use, for every slot.

    Limits: `snr_db = inf` gives zero noise. Where the reference power is zero, so is the noise: a silent round under
    `round`, a silent slot under `slot`, no active device under `transmit`. No gradient flows through the variance.

    Args:
        signal: The superposed signal without noise.
        snr_db: Signal-to-noise ratio in decibels.
        reference: Which signal power the ratio refers to; see the module.
        num_active: Devices that transmit in this round (used by `transmit` only).
        power: What a device is meant to spend per channel use on average (used by `transmit` only); if not given, that of
            a codeword of energy one in every slot.

    Raises:
        ConfigError: If the SNR is no number or below -100 dB, the reference is unknown, or `num_active` or
            `power` is negative.
        ShapeError: If the signal is not a finite matrix.
    """
    over_snr = _inverse_snr(snr_db)
    power = 1 / max(signal.shape[-1], 1) if power is None else power
    _check(signal, num_active, power)
    signal = signal.detach()  # a learned codebook must not earn a lower noise by sending less power
    signal = signal.abs() if signal.is_complex() else signal
    slots = len(signal)
    match reference:
        case "round":  # accumulated in float64: the same variance however the sum is split
            total = signal.square().sum(dtype=torch.float64)
            reference_power = (total / max(signal.numel(), 1)).expand(
                slots
            )  # a round without slots has no noise to set
        case "slot":
            reference_power = signal.square().mean(dim=1, dtype=torch.float64)
        case "transmit":
            reference_power = signal.new_full((slots,), num_active * power, dtype=torch.float64)
        case _:
            raise unknown_name("SNR reference", str(reference), get_args(SnrReference))
    return (reference_power * over_snr).to(signal.dtype)


def _inverse_snr(snr_db: float) -> float:
    if math.isnan(snr_db) or snr_db < LOWEST_SNR_DB:
        raise ConfigError(f"snr_db = {snr_db}: expected decibels, at least {LOWEST_SNR_DB:g}, or inf for no noise")
    return 10.0 ** (-snr_db / 10.0)


def _check(signal: Tensor, num_active: int, power: float) -> None:
    numbers = signal.is_floating_point() or signal.is_complex()
    if signal.ndim != 2 or not numbers or signal.shape[1] == 0:
        raise ShapeError(
            f"signal is {signal.dtype} of shape {tuple(signal.shape)}; expected real or complex [slots, uses], uses > 0"
        )
    if not torch.isfinite(signal).all():
        raise ShapeError("signal holds values that are not finite; check the codebook and the counts")
    if num_active < 0 or not 0 <= power < math.inf:
        raise ConfigError(f"num_active = {num_active}, power = {power}: expected neither negative, both finite")
