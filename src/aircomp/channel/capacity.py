r"""The capacity of the multiple-access channel, where all devices are to have the same rate."""

import math

import torch
from jaxtyping import Float, Inexact
from torch import Tensor


def joint_rate(gains: Inexact[Tensor, "devices blocks antennas"]) -> Float[Tensor, " blocks"]:
    r"""Return the bits of a real channel use from each device, were the base station to decode all of them together.

    Any devices $S$ of those that speak are bounded by $\tfrac12\log_2\det(I + H_S^H H_S)$ together. Of all sets, those of
    the weakest devices are looked at: on one antenna they have the least rate, on several this is a bound.

    Args:
        gains: Over the deviation of the noise; zero: the device is silent.
    """
    devices, blocks, _ = gains.shape
    if devices == 0:
        return torch.zeros(blocks)
    wide = gains.to(torch.promote_types(gains.dtype, torch.float64))
    noiseless = ~wide.abs().isfinite().all(dim=2).all(dim=0)
    wide = wide.where(~noiseless[:, None], 1.0)
    power = wide.abs().square().sum(dim=2)
    speaking = power > 0
    order = power.where(speaking, torch.inf).argsort(dim=0)
    sorted_gains = wide.gather(0, order[:, :, None].expand_as(wide)).transpose(0, 1)
    # the triangle of [Hᴴ; I] is the Cholesky factor of I + HHᴴ, whose diagonal has the determinants of all leading minors
    alone = torch.eye(devices, dtype=wide.dtype, device=wide.device).expand(blocks, -1, -1)
    factor = torch.linalg.qr(torch.cat([sorted_gains.mH, alone], dim=1), mode="r").R
    bits = factor.diagonal(dim1=1, dim2=2).abs().log().cumsum(dim=1) / math.log(2)
    rates = bits / torch.arange(1, devices + 1, device=bits.device)
    number = speaking.sum(dim=0)[:, None]
    within = torch.arange(devices, device=bits.device) < number
    least = rates.where(within, torch.inf).amin(dim=1).where(number[:, 0] > 0, 0.0)
    return least.where(~noiseless, torch.inf).float()


def sum_rate(gains: Inexact[Tensor, "devices blocks antennas"]) -> Float[Tensor, " blocks"]:
    r"""Return the bits of a real channel use at which lattice codes let the base station decode the sum of those that speak.

    Compute-and-forward (Nazer and Gastpar 2011) with the coefficients $a$, one for every device that speaks, reaches
    $-\tfrac12\log_2 a^T (I + HH^H)^{-1} a$, or nothing where that is negative. With equal gains on one antenna it is
    $\tfrac12\log_2((1 + \Gamma)/K)$, where $\Gamma$ is the SNR of all devices together. Phases that differ leave nothing.

    Args:
        gains: Over the deviation of the noise; zero: the device is silent.
    """
    devices, blocks, _ = gains.shape
    if devices == 0:
        return torch.zeros(blocks)
    wide = gains.transpose(0, 1).to(torch.complex128)
    noiseless = ~wide.abs().isfinite().flatten(1).all(dim=1)
    wide = wide.where(~noiseless[:, None, None], 1.0)
    speaking = wide.abs().sum(dim=2, keepdim=True) > 0
    # what the best receiver leaves over, the least |a − Hb|² + |b|²: as a distance it is exact where it is small
    noise = torch.eye(wide.shape[2], dtype=wide.dtype, device=wide.device).expand(blocks, -1, -1)
    wanted = torch.cat([speaking.to(wide), torch.zeros_like(noise[:, :, :1])], dim=1)
    reached = torch.linalg.qr(torch.cat([wide, noise], dim=1)).Q
    left = (wanted - reached @ (reached.mH @ wanted)).abs().square().sum(dim=(1, 2))
    bits = (-left.clamp(min=torch.finfo(torch.float64).tiny).log2() / 2).clamp(min=0.0)
    return bits.where(speaking.any(dim=1)[:, 0], 0.0).where(~noiseless, torch.inf).float()
