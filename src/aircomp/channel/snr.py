r"""The only definition of the signal-to-noise ratio.

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
from typing import get_args

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from aircomp.channel.settings import LOWEST_SNR_DB
from aircomp.common.snr import SnrReference
from aircomp.errors import ConfigError, ShapeError, unknown_name


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
