r"""Counting behind gains that are nearly one: GAMP with a likelihood as wide as the gains are spread.

Devices that invert their channel miss by a phase, by an error of CSI, or undo the phase alone. The $m$ devices on codeword
$c_j$ then deliver $z_j = \sum g_k$ with $\mathrm{Re}\,z \sim N(m\mu, m v_R)$ and $\mathrm{Im}\,z \sim N(0, m v_I)$. In real
form the imaginary part goes along $j c_j$, a second dictionary. GAMP runs on both; their pseudo-channels tell the count:

$$\log P(m) = \log P_0(m) - \tfrac12\ln(\tau^a + m v_R) - \frac{(R^a - m\mu)^2}{2(\tau^a + m v_R)}
 - \tfrac12\ln(\tau^b + m v_I) - \frac{(R^b)^2}{2(\tau^b + m v_I)}$$

Without spread it is GAMP. It hears the first antenna alone, in whose phase devices send.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from aircomp.common.packing import unpack
from aircomp.common.radio import GainModel
from aircomp.decoders.amp.steps import MAX_STATE, MIN_NOISE
from aircomp.decoders.base import Decoded
from aircomp.decoders.estimate.pilot import PILOT_SLOTS, PilotEstimator
from aircomp.decoders.fading.count_weights import CountTable, largest_count
from aircomp.decoders.fading.receiver import (
    Reception,
    check_complex_codebook,
    check_phase,
    check_reception,
    conclude_blocks,
    expected_counts,
    soft_counts,
)
from aircomp.decoders.settings import WidenedSettings

AT_ONCE = 50_000
"""Weights of the slots that are decoded together: larger tables take fresh memory every time. Only the time changes."""
NOISE_PASSES = 2
"""Decodings of some slots that settle the noise: estimates for exact gains take their spread for noise."""


@dataclass(frozen=True)
class Moments:
    """Of both parts of every codeword's sum of gains, and the count."""

    real: Tensor
    imag: Tensor
    var_real: Tensor
    var_imag: Tensor
    count: Tensor


def widened_posterior(
    observed: tuple[Tensor, Tensor],
    variance: tuple[Tensor, Tensor],
    log_prior: Tensor,
    table: CountTable,
    model: GainModel,
) -> Moments:
    """Return the moments of every sum of gains behind its two pseudo-channels.

    Args:
        observed: R of the real and of the imaginary part, [slots, codewords] each.
        variance: Their variances τ.
        log_prior: Of every count, [#slots, counts, codewords].
        table: The counts.
        model: How gains are spread.
    """
    (Ra, Rb), (ta, tb) = ([x[:, None] for x in pair] for pair in (observed, variance))
    m = table.counts[:, None].to(Ra)
    # in place where it can be: these are the largest numbers of a round, and new memory costs more than arithmetic
    inverse_a, inverse_b = (ta + m * model.var_real).reciprocal_(), (tb + m * model.var_imag).reciprocal_()
    away = Ra - m * model.mean
    pull = away * inverse_a
    score = (inverse_a * inverse_b).log_().addcmul_(pull, away, value=-1).addcmul_(inverse_b, Rb.square(), value=-1)
    weight = torch.softmax(score.mul_(0.5).add_(log_prior), 1)
    # given m, the real part is Ra − τ·pull with the variance τ − τ²·inverse; the imaginary part likewise, with Rb·inverse
    mean_pull, mean_a, mean_b = ((weight * x).sum(1) for x in (pull, inverse_a, inverse_b))
    var_pull = pull.sub_(mean_pull[:, None]).square_().mul_(weight).sum(1)
    var_b = inverse_b.sub_(mean_b[:, None]).square_().mul_(weight).sum(1)
    (Ra, Rb), (ta, tb) = observed, variance
    return Moments(
        real=Ra - ta * mean_pull,
        imag=Rb * (1 - tb * mean_b),
        var_real=ta * (1 - ta * mean_a) + ta.square() * var_pull,
        var_imag=tb * (1 - tb * mean_b) + (tb * Rb).square() * var_b,
        count=weight.mul_(m).sum(1),
    )


@dataclass(frozen=True)
class Found:
    """What message passing found in some slots."""

    mean: Float[Tensor, "slots codewords"]
    noise_var: Float[Tensor, " slots"]
    """Per real use, below zero where a slot has less than its share."""


def widened_gamp(
    y: Float[Tensor, "slots uses"],
    rows: Float[Tensor, "twice_codewords uses"],
    noise_var: float,
    log_prior: Float[Tensor, "#slots counts codewords"],
    start: Float[Tensor, "#slots codewords"],
    table: CountTable,
    model: GainModel,
    *,
    iterations: int,
) -> Found:
    """Run GAMP on both dictionaries.

    Args:
        y: What the antenna heard, in real uses.
        rows: Every codeword, then every codeword times j.
        noise_var: Per real use.
        log_prior: Of every count.
        start: Expected counts.
        table: The counts.
        model: How gains are spread.
        iterations: Of message passing.
    """
    n, noise_var = len(rows) // 2, max(noise_var, MIN_NOISE)
    squared = rows.square()
    prior = torch.softmax(log_prior, 1)
    m = table.counts[:, None].to(prior)
    mean = (prior * m).sum(1)
    spread = model.mean**2 * ((prior * m**2).sum(1) - mean**2)
    x = torch.cat([model.mean * start, torch.zeros_like(start)], 1).expand(len(y), -1)
    nu = torch.cat([spread + mean * model.var_real, mean * model.var_imag], 1).expand(len(y), -1)
    residual = torch.zeros_like(y)
    moments, v = None, residual
    for _ in range(iterations):
        v = nu @ squared
        z = (x @ rows - v * residual).clamp_(-MAX_STATE, MAX_STATE)
        residual = (y - z) / (noise_var + v)
        tau = ((noise_var + v).reciprocal() @ squared.mT).reciprocal()
        R = x + tau * (residual @ rows.mT)
        moments = widened_posterior((R[:, :n], R[:, n:]), (tau[:, :n], tau[:, n:]), log_prior, table, model)
        x = torch.cat([moments.real, moments.imag], 1)
        nu = torch.cat([moments.var_real, moments.var_imag], 1)
    assert moments is not None  # at least one iteration
    # message passing sees each use as z plus noise of variance σ² + v
    return Found(moments.count, ((residual * (noise_var + v)).square() - v).double().mean(1))


class Widened:
    """GAMP with the widened likelihood; the number of devices and the noise are estimated from each block.

    Args:
        codebook: Unit-norm complex codewords, one a row.
        settings: Its options.
    """

    side_information: tuple[str, ...] = ()

    def __init__(self, codebook: Complex[Tensor, "codewords uses"], settings: WidenedSettings | None = None):
        self.settings, codebook = settings or WidenedSettings(), check_complex_codebook(codebook)
        self.codebook, uses = codebook, 2 * codebook.shape[1]
        self.rows = torch.cat([unpack(codebook, uses), unpack(1j * codebook, uses)])
        self.pilot = PilotEstimator(self.rows[: len(codebook)], agreement=self.settings.agreement)

    @torch.no_grad()
    def receive(self, seen: Reception) -> list[Decoded]:
        """Estimate the counts of every block.

        Raises:
            ConfigError: If gains have no common phase.
        """
        seen = check_reception(seen, self.codebook)
        popularity, model = seen.popularity, seen.gain_model
        check_phase(seen, "widened")
        y = unpack(seen.received[0], self.rows.shape[1])
        groups = seen.all_blocks if model.silence else (slice(0, len(y)),)
        known = [self._estimate(y[rows], popularity, seen) for rows in groups]
        mean = popularity.new_zeros(len(y), len(popularity))
        for rows, (num_active, noise) in zip(groups, known, strict=True):
            mean[rows] = self._decode(y[rows], num_active, noise, popularity, seen, rows)
        devices = [k for k, _ in known] * (1 if model.silence else len(seen.all_blocks))
        noise = sum(v * (rows.stop - rows.start) for rows, (_, v) in zip(groups, known, strict=True)) / max(len(y), 1)
        return conclude_blocks(mean, 2 * noise, devices, seen.all_blocks)

    def _estimate(self, y: Tensor, popularity: Tensor, seen: Reception) -> tuple[float, float]:
        """Return the number of devices and the noise per real use."""
        given = None if seen.noise_var is None else y.new_full((len(y),), seen.noise_var / 2)
        shared, noise = self.pilot.estimate(y / seen.gain_model.mean, popularity, seen.num_active, given)
        variance = float(noise.double().mean()) * (seen.gain_model.mean**2 if given is None else 1) if len(y) else 0.0
        num_active = seen.num_active if seen.num_active is not None else shared.num_active
        some = y[:: max(1, len(y) // PILOT_SLOTS)]
        for _ in range(
            NOISE_PASSES if len(y) and given is None and num_active >= 0.5 and not seen.gain_model.exact else 0
        ):
            rate = expected_counts(num_active, popularity)
            found = self._run(some, rate, variance, seen.gain_model, self.settings.iterations)
            variance = max(float(found.noise_var.mean()), 0.0)
        return num_active, variance

    def _decode(
        self, y: Tensor, num_active: float, noise_var: float, popularity: Tensor, seen: Reception, rows: slice
    ) -> Tensor:
        if num_active < 0.5 or len(y) == 0:
            return popularity.new_zeros(len(y), len(popularity))

        def run(some: Tensor, rate: Tensor, iterations: int) -> Tensor:
            if seen.gain_model.exact:  # GAMP, which weighs fewer counts in less time
                return self.pilot.means(some, some.new_full((len(some),), noise_var), rate, iterations)
            return self._run(some, rate, noise_var, seen.gain_model, iterations).mean

        groups = [None if g is None else g[rows] for g in (seen.slot_layers, seen.bs_indices)]
        rate = expected_counts(num_active, popularity)
        return soft_counts(run, y, rate, self.settings.iterations, *groups)

    def _run(self, y: Tensor, rate: Tensor, noise_var: float, model: GainModel, iterations: int) -> Found:
        table, rows = CountTable.of(largest_count(float(rate.max()))), self.rows.to(y)
        size = max(1, AT_ONCE // (len(table.counts) * rate.shape[1]))
        found = []
        for first in range(0, len(y), size):
            own = rate if len(rate) == 1 else rate[first : first + size]
            prior = table.log_prior(own, self.settings.agreement)
            part = y[first : first + size]
            found.append(widened_gamp(part, rows, noise_var, prior, own, table, model, iterations=iterations))
        return Found(torch.cat([part.mean for part in found]), torch.cat([part.noise_var for part in found]))
