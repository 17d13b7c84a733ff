r"""Receive beamforming: the base station weighs its antennas, so that the weakest device is heard as well as can be.

A beam $w$ of length one hears device $k$ with the gain $w^H h_k$ and the noise of one antenna. Devices arrive as the weakest
of them does (`power.py`), so the error of their sum is the noise over $\min_k |w^H h_k|^2$: the beam with the largest minimum
is sought. Where that is below a threshold, the weakest device is left out, and a beam sought for the others (Yang et al.
2020 solve a sparse and low-rank problem in place of this greedy choice).
"""

import math

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

STEPS, STEP = 100, 0.2
SHARPEST = 0.02
"""The minimum is softened by so much of the mean power at the end, and by all of it at the start. The weakest of ten devices
on 4, 8 and 64 antennas has a power of .82, 1.62 and 9.75, after 1,500 steps of Adam .81, 1.65 and 9.80."""
CHUNK = 64
"""Blocks at a time, always so many: tensors of another shape are rounded differently, and a longer round would not begin as a
shorter one does."""


def choose_beams(
    gains: Complex[Tensor, "devices blocks antennas"], threshold: float
) -> tuple[Complex[Tensor, "blocks antennas"], Bool[Tensor, "devices blocks"]]:
    """Return the beam of every block, and the devices that it is for: one at least.

    Args:
        gains: Of all devices, which the base station knows.
        threshold: The least power behind the beam of a device that is not left out.
    """
    blocks = gains.shape[1]
    last = gains[:, -1:].expand(-1, -blocks % CHUNK, -1)
    each = [_choose(part, threshold) for part in torch.cat([gains, last], dim=1).split(CHUNK, dim=1)]
    return torch.cat([beams for beams, _ in each])[:blocks], torch.cat([c for _, c in each], dim=1)[:, :blocks]


def _choose(
    gains: Complex[Tensor, "devices blocks antennas"], threshold: float
) -> tuple[Complex[Tensor, "blocks antennas"], Bool[Tensor, "devices blocks"]]:
    chosen = torch.ones(gains.shape[:2], dtype=torch.bool, device=gains.device)
    while True:
        beams = max_min_beams(gains, chosen)
        power = heard_through(gains, beams).abs().square().where(chosen, torch.inf)
        poor = (power.amin(dim=0) < threshold) & (chosen.sum(dim=0) > 1)
        if not poor.any():
            return beams, chosen
        chosen[power.argmin(dim=0)[poor], poor.nonzero()[:, 0]] = False


def heard_through(
    gains: Complex[Tensor, "devices blocks antennas"], beams: Complex[Tensor, "blocks antennas"]
) -> Complex[Tensor, "devices blocks"]:
    """Return the gains behind the beams."""
    return (gains * beams.conj()).sum(dim=2)


def max_min_beams(
    gains: Complex[Tensor, "devices blocks antennas"], chosen: Bool[Tensor, "devices blocks"]
) -> Complex[Tensor, "blocks antennas"]:
    """Return beams under which the weakest of the chosen devices has as much power as could be found.

    They begin where most devices are. Every step turns a beam towards the devices, each by its weight in a soft minimum
    that grows sharper.
    """
    directions = chosen[:, :, None] * _normalised(gains)
    spread = torch.einsum("kba,kbc->bac", directions, directions.conj())
    beams = torch.linalg.eigh(spread).eigenvectors[:, :, -1]
    best, most = beams, torch.full_like(beams[:, 0].real, -1.0)
    for i in range(STEPS):
        heard = heard_through(gains, beams)
        power = heard.abs().square()
        weakest = power.where(chosen, torch.inf).amin(dim=0)
        best = torch.where((weakest > most)[:, None], beams, best)
        most = torch.maximum(weakest, most)
        softness = SHARPEST ** (i / STEPS) * _mean(power, chosen)
        weights = torch.softmax((-power / softness).where(chosen, -torch.inf), dim=0)
        pull = heard.conj() * weights / (weights * power).sum(dim=0)
        beams = _normalised((1 - STEP) * beams + STEP * (gains * pull[:, :, None]).sum(dim=0))
    return best


def _mean(power: Float[Tensor, "devices blocks"], chosen: Bool[Tensor, "devices blocks"]) -> Float[Tensor, " blocks"]:
    return (power * chosen).sum(dim=0) / chosen.sum(dim=0)


def _length(vectors: Complex[Tensor, "*batch antennas"]) -> Float[Tensor, "*batch 1"]:
    tiny = math.sqrt(torch.finfo(vectors.real.dtype).tiny)  # a gain of zero has no direction
    return vectors.abs().square().sum(dim=-1, keepdim=True).sqrt().clamp(min=tiny)


def _normalised(vectors: Complex[Tensor, "*batch antennas"]) -> Complex[Tensor, "*batch antennas"]:
    return vectors / _length(vectors)
