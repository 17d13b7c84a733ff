r"""Counting from the covariance over the antennas: what TUMA-like schemes do when they know nothing of gains.

With random gains, $\hat S = YY^H/N_r \approx C\,\mathrm{diag}(x)\,C^H + \sigma^2 I$ of a slot. Two fits of $x \ge 0$:

`nnls` least squares, $\min \tfrac12 x^\top G x - b^\top x$ with $G_{ij} = |c_i^H c_j|^2$ and
       $b_j = \|c_j^H Y\|^2/N_r - \sigma^2$, one coordinate after the other.
`ml`   maximum likelihood of the covariance: with $q = c^H\Sigma^{-1}c$ and $o = c^H\Sigma^{-1}\hat S\Sigma^{-1}c$, coordinate
       $j$ moves by $\max((o-q)/q^2, -x_j)$, and $\Sigma^{-1}$ follows by a rank-one update.

Neither knows the popularity; the blind receiver does, and counts better. They are here to compare with.
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from aircomp.decoders.base import Decoded
from aircomp.decoders.fading.blind import Blind
from aircomp.decoders.fading.receiver import Reception, check_complex_codebook, check_reception, conclude_blocks
from aircomp.decoders.settings import CovarianceSettings

CHUNK = 256
"""Slots decoded at a time: bounds the temporaries, changes nothing else."""
MIN_NOISE = 1e-2
"""Of a complex use: the inverse of the covariance follows hundreds of updates in float32, and a device has power one."""


class Covariance:
    """Fits the covariance over the antennas, slot by slot; noise and number of devices are the blind receiver's.

    Args:
        codebook: Unit-norm complex codewords, one a row.
        settings: Its options.
    """

    side_information: tuple[str, ...] = ()

    def __init__(self, codebook: Complex[Tensor, "codewords uses"], settings: CovarianceSettings | None = None):
        self.codebook, self.settings = check_complex_codebook(codebook), settings or CovarianceSettings()
        self.blind = Blind(self.codebook)

    @torch.no_grad()
    def receive(self, seen: Reception) -> list[Decoded]:
        """Estimate the counts of every block."""
        seen = check_reception(seen, self.codebook)
        Y = seen.received.transpose(0, 1)
        num_active, noise_var = self.blind.estimate(Y, seen.popularity, seen)
        fit = nnls if self.settings.fit == "nnls" else maximum_likelihood
        noise = max(noise_var, MIN_NOISE)
        parts = [fit(piece, self.codebook, noise, self.settings.sweeps) for piece in Y.split(CHUNK)]
        mean = (
            torch.cat(parts) if len(Y) and num_active >= 0.5 else seen.popularity.new_zeros(len(Y), len(self.codebook))
        )
        return conclude_blocks(mean, noise_var, [num_active] * len(seen.all_blocks), seen.all_blocks)


def nnls(
    Y: Complex[Tensor, "slots antennas uses"], C: Complex[Tensor, "codewords uses"], noise_var: float, sweeps: int
) -> Float[Tensor, "slots codewords"]:
    """Return the non-negative powers that fit the matched filters' energies best."""
    gram = (C @ C.mH).abs().square()
    b = (Y @ C.mH).abs().square().mean(1) - noise_var
    x = torch.zeros_like(b)
    gradient = -b
    for _ in range(sweeps):
        for j in range(len(C)):
            step = torch.maximum(-gradient[:, j], -x[:, j])  # the diagonal of the Gram matrix is one
            x[:, j] += step
            gradient += step[:, None] * gram[j]
    return x


def maximum_likelihood(
    Y: Complex[Tensor, "slots antennas uses"], C: Complex[Tensor, "codewords uses"], noise_var: float, sweeps: int
) -> Float[Tensor, "slots codewords"]:
    """Return the powers under which the covariance over the antennas is most likely."""
    slots, antennas, uses = Y.shape
    inverse = (torch.eye(uses, dtype=Y.dtype, device=Y.device) / noise_var).expand(slots, -1, -1).contiguous()
    x = Y.real.new_zeros(slots, len(C))
    for _ in range(sweeps):
        for j, c in enumerate(C):
            along = inverse @ c  # [slots, uses]
            q = (along * c.conj()).sum(1).real
            o = (Y.conj() @ along[:, :, None]).squeeze(2).abs().square().sum(1) / antennas
            step = torch.maximum((o - q) / q.square(), -x[:, j])
            x[:, j] += step
            shrink = step / (1 + step * q)
            inverse -= shrink[:, None, None] * along[:, :, None] * along.conj()[:, None, :]
    return x
