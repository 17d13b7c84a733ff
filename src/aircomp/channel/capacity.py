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
