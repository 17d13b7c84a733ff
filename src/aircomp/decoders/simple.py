"""Decoders to compare with: orthogonal matching pursuit, non-negative least squares, and a genie that is told."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.decoders.base import MAX_DEVICES, BaseDecoder, Decoded, Observation, check_codebook
from aircomp.decoders.heard import exact_counts, hear, noise_per_slot
from aircomp.decoders.settings import NnlsSettings
from aircomp.errors import ConfigError, ShapeError

_CHUNK = 512  # slots at a time, so that the [chunk, codewords] temporaries stay in cache


class Omp(BaseDecoder):
    """Orthogonal matching pursuit: add the codeword that fits the residual best, refit all by least squares, repeat.

    A slot ends when no codeword has half a count left in the residual (it would round to zero), when the residual is
    no larger than the noise (if that is given), or after `num_active` codewords (if that is given).
    """

    passes = 13

    def __init__(self, codebook: Float[Tensor, "codewords uses"]):
        self.codebook = check_codebook(codebook)

    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot; the popularity serves only to estimate how many devices there are."""
        heard = hear(self.codebook, seen)
        received, popularity, codebook, noise = heard.received, heard.popularity, heard.codebook, heard.noise_var
        num_active = heard.num_active
        floor = received.new_zeros(len(received)) if noise is None else noise * codebook.shape[1]
        # more codewords than channel uses are not independent
        most = min(codebook.shape) if num_active is None else min(*codebook.shape, max(0, round(num_active)))
        mean = exact_counts(received, codebook)
        if mean is None:
            parts = zip(received.split(_CHUNK), floor.split(_CHUNK), strict=True)
            mean = torch.cat([_pursue(y, codebook, f, most) for y, f in parts])
            num_active = _num_active(received, popularity, codebook, mean) if num_active is None else num_active
        return heard.conclude(mean, _residual_var(received, mean, codebook) if noise is None else noise, num_active)


class Nnls(BaseDecoder):
    """Non-negative least squares by accelerated projected gradient (FISTA).

    Args:
        codebook: Unit-norm codewords, one a row.
        settings: Its options.
    """

    passes = 50

    def __init__(self, codebook: Float[Tensor, "codewords uses"], settings: NnlsSettings | None = None):
        self.codebook, self.settings = check_codebook(codebook), settings or NnlsSettings()

    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot; the popularity serves only to estimate how many devices there are."""
        heard = hear(self.codebook, seen)
        received, popularity, codebook, noise = heard.received, heard.popularity, heard.codebook, heard.noise_var
        num_active = heard.num_active
        mean = exact_counts(received, codebook)
        if mean is None:
            mean = torch.cat([_fista(y, codebook, self.settings.num_steps) for y in received.split(_CHUNK)])
            num_active = _num_active(received, popularity, codebook, mean) if num_active is None else num_active
        return heard.conclude(mean, _residual_var(received, mean, codebook) if noise is None else noise, num_active)


class Genie(BaseDecoder):
    """Returns the counts it is told: what everything after the decoder would do with a perfect one.

    Args:
        truth: How many devices sent each codeword in each slot of the round to come; all rows have the same sum.
    """

    def __init__(self, *, truth: Int[Tensor, "slots codewords"] | None = None):
        self.truth = truth

    def infer(self, seen: Observation) -> Decoded:
        """Return the truth; a noise variance that is not given is zero."""
        received, popularity, truth = seen.received, seen.popularity, self.truth
        if truth is None:
            raise ConfigError("the genie was not told the counts; pass truth=, or choose a decoder that needs no truth")
        if not isinstance(truth, Tensor) or truth.is_floating_point() or truth.is_complex():
            kind = truth.dtype if isinstance(truth, Tensor) else type(truth).__name__
            raise ShapeError(f"truth is {kind}; expected integers, how many devices sent each codeword in each slot")
        for name, given in {"received": received, "popularity": popularity}.items():
            if not isinstance(given, Tensor) or given.ndim == 0 or not given.is_floating_point():
                kind = f"{given.dtype} {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
                raise ShapeError(f"{name} is {kind}; expected floats, as for any other decoder")
        if truth.shape != (len(received), len(popularity)):
            expected = [len(received), len(popularity)]
            raise ShapeError(f"truth has shape {tuple(truth.shape)}; expected {expected} for this signal")
        sums = truth.sum(1)
        if len(sums) and ((sums != sums[0]).any() or (truth < 0).any()):
            raise ShapeError("truth holds no counts of one round: expected non-negative rows that have the same sum")
        noise = (
            received.new_zeros(len(received)) if seen.noise_var is None else noise_per_slot(seen.noise_var, received)
        )
        num_active = float(sums[0]) if len(sums) else seen.num_active or 0.0
        return Decoded(truth.long(), truth.to(received.dtype), num_active, noise)


def _pursue(
    y: Float[Tensor, "slots uses"], codebook: Float[Tensor, "codewords uses"], floor: Float[Tensor, " slots"], most: int
) -> Float[Tensor, "slots codewords"]:
    """Grow the support of all slots of a chunk together; those that end leave the batch."""
    gram, matched = codebook @ codebook.T, y @ codebook.T
    x = torch.zeros_like(matched)
    rows = torch.arange(len(y), device=y.device)
    support = rows.new_zeros(len(y), 0)
    for _ in range(most):
        residual = y[rows] - x[rows] @ codebook
        best, choice = (residual @ codebook.T).max(1)
        going = (best > 0.5) & (residual.square().sum(1) > floor[rows])
        rows, support = rows[going], torch.cat([support[going], choice[going, None]], 1)
        if len(rows) == 0:
            break
        block = gram[support[:, :, None], support[:, None, :]]
        weights, _ = torch.linalg.solve_ex(block, matched[rows].gather(1, support))
        # nearly dependent codewords have weights of any size, or none: such a slot keeps what it had before
        sound = weights.abs().amax(1) <= MAX_DEVICES
        rows, support = rows[sound], support[sound]
        x[rows] = x[rows].scatter(1, support, weights[sound])
    return x


def _fista(
    y: Float[Tensor, "slots uses"], codebook: Float[Tensor, "codewords uses"], num_steps: int
) -> Float[Tensor, "slots codewords"]:
    gram, matched = codebook @ codebook.T, y @ codebook.T
    lipschitz = torch.linalg.matrix_norm(codebook, 2) ** 2
    x = torch.zeros_like(matched)
    ahead, momentum = x, 1.0
    for _ in range(num_steps):
        x_new = (ahead + (matched - ahead @ gram) / lipschitz).clamp_min_(0)
        momentum_new = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = torch.lerp(x, x_new, 1 + (momentum - 1) / momentum_new)
        x, momentum = x_new, momentum_new
    return x


def _residual_var(received: Tensor, mean: Tensor, codebook: Tensor) -> Float[Tensor, " slots"]:
    """Return the residual energy of each slot over the channel uses that the fit left free."""
    free = (codebook.shape[1] - (mean > 0).sum(1)).clamp_min(1)  # at least one: a full fit says nothing of the noise
    return (received - mean @ codebook).square().sum(1) / free


def _num_active(received: Tensor, popularity: Tensor, codebook: Tensor, mean: Tensor) -> float:
    """Estimate the number of devices from the sum of soft counts, unless the popularity contradicts it.

    Noise biases that sum (of non-negative soft counts far upwards). The multiple of the expected codeword that fits
    the mean slot best has no such bias, but few slots say little about it and the base station's popularity is only
    nearly that of the devices: it has to differ by three standard errors and a tenth before it is believed.
    """
    total = mean.clamp_min(0).sum(1).mean().item()
    if len(received) == 1:
        return total
    expected = popularity @ codebook
    # codewords that cancel give a huge standard error, not a division by zero
    fits = received @ expected / expected.square().sum().clamp_min(1e-12)
    fit = max(0.0, fits.mean().item())
    doubt = 3 * fits.std().item() / math.sqrt(len(fits)) + 0.1 * fit
    return fit if abs(total - fit) > doubt else total
