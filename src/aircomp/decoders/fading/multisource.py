r"""Multisource AMP: message passing between codewords and the antennas of one or several access points (TUMA).

Nobody knows phases, so $m$ devices that choose one codeword are heard at access point $b$ as a random vector over its $A$
antennas, of mean power $p_b$. AMP gives each codeword its own pseudo-channel $R_b = X_b + CN(0, T_b)$, whose energy
$u_b = \|R_b\|^2$ is all that counts. A table has the counts that are weighed, each with the powers that it may have:

$$P(m, p) \propto P_0(m, p)\prod_b (T_b+p_b)^{-A} e^{-u_b/(T_b+p_b)}, \qquad
X_b = E[\phi_b] R_b,\quad \phi_b = \frac{p_b}{T_b+p_b}$$

    Y_b ──► R_b = C^H Z_b + X_b ──► u_b ─┬─► P(m, p) ─┬─► φ_b, X_b ──► Z_b = Y_b − C X_b + o_b Z_b ──┐
             ▲     of every b            └─ all b ────┘     of every b                               │
             └───────────────────────────────────────────────────────────────────────────────────────┘

$T_b$ is the power of $Z_b$. The Onsager coefficient $o_b$ is ours: the sum of $E[\phi] + \frac{u}{A\,T}\,Var[\phi]$ over
codewords, over the number of uses. The noise need not be known: it is $T_b(1-o_b)$.

A `Schedule` says what each iteration does; `aircomp.decoders.fading.blind_net` learns one.

Complex numbers are kept as pairs of real rows: a real product is faster, and what is real multiplies both alike.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

MIN_POWER = 1e-12
"""Of a slot's residual, relative to the power of all: keeps divisions finite."""
SILENCE = 1e-18
"""The least power of all: that of a round in which nobody was heard. Smaller ones have no finite reciprocals."""
MIN_LOG_WEIGHT = -80.0
"""Below: e^−80 adds nothing to one, and smaller weights are denormal numbers, which processors handle slowly."""


NEWTON = 6
"""Steps of Newton's method towards the sum of a slot."""
LEAST_OPEN, MOST_BENT = 0.2, 2.5
"""Variance of a slot's sum, at least, and the largest exponent: where all is certain, no sum changes it."""


@dataclass(frozen=True)
class Schedule:
    """What each iteration does."""

    damping: Float[Tensor, " iterations"]
    """Share of the old estimate that it keeps; the last one has no use for it, nor for the next."""
    onsager: Float[Tensor, " iterations"]
    """What the Onsager term is multiplied with."""
    variance: Float[Tensor, " iterations"]
    """What the noise of the pseudo-channels is multiplied with."""
    trust: Float[Tensor, " iterations"]
    """What the log likelihood is multiplied with."""
    sum_share: Float[Tensor, ""] | None = None
    """How far the counts of a slot are brought to the number of devices at the end; None: not at all."""

    @classmethod
    def plain(cls, iterations: int, damping: float) -> "Schedule":
        """Return that of message passing as it is derived; nothing is kept of the start, which is zero."""
        one = torch.ones(iterations)
        return cls(damping * (torch.arange(iterations) > 0), one, one, one)

    def first(self, iterations: int) -> "Schedule":
        """Return a shorter one: its first iterations, and the last."""
        if iterations >= len(self.trust):
            return self
        kept = [*range(iterations - 1), len(self.trust) - 1]
        return Schedule(self.damping[kept], self.onsager[kept], self.variance[kept], self.trust[kept], self.sum_share)


@dataclass(frozen=True)
class Found:
    """What message passing found in some slots."""

    mean: Float[Tensor, "slots zones codewords"]
    """Posterior mean of the counts."""
    once: Float[Tensor, "slots zones codewords"]
    """Probability that one device sent a codeword."""
    vectors: Complex[Tensor, "slots access_points antennas words"]
    """R: every codeword's sum of gains over the antennas, with noise."""
    noise_var: Float[Tensor, " slots"]
    """Per complex use and antenna."""
    weight: Float[Tensor, "slots zones rows codewords"]
    """Posterior probability of every row of the table, up to `total`."""
    total: Float[Tensor, "slots zones 1 codewords"]
    counts: Float[Tensor, " rows"]
    """What the rows of the table stand for."""


def multisource_amp(
    Y: Complex[Tensor, "slots access_points antennas uses"],
    C: Complex[Tensor, "words uses"],
    log_prior: Float[Tensor, "#slots zones rows codewords"],
    counts: Float[Tensor, " rows"],
    power: Float[Tensor, "zones rows access_points"],
    schedule: Schedule,
    num_active: Float[Tensor, "#slots"] | None = None,
) -> Found:
    """Run message passing on some slots.

    Args:
        Y: What was heard.
        C: Codewords; those of a zone follow each other.
        log_prior: Log weight of every row of the table beforehand.
        counts: What the rows of the table stand for.
        power: Of every row, at every access point.
        schedule: What each iteration does.
        num_active: The number of devices, for schedules that bring counts to it.
    """
    power, words = power.to(log_prior), torch.cat([C.real, C.imag], dim=1)
    heard = _pairs(Y.real, Y.imag)
    floor = MIN_POWER * max(float(Y.detach().abs().square().mean()), SILENCE)
    Z, X = heard, heard.new_zeros(*heard.shape[:3], len(C))
    seen = _look(Z, X, words, log_prior, power, floor, schedule.variance[0], schedule.trust[0])
    for step in range(1, len(schedule.trust)):
        X = torch.lerp(seen.phi[:, :, None] * seen.R, X, schedule.damping[step - 1].to(X))
        Z = heard - _sent(X, words) + schedule.onsager[step - 1] * seen.onsager[:, :, None, None] * Z
        seen = _look(Z, X, words, log_prior, power, floor, schedule.variance[step], schedule.trust[step])
    counts, weight, total = counts.to(log_prior), seen.weight, seen.total
    if schedule.sum_share is not None and num_active is not None:
        bend = schedule.sum_share * towards_sum(weight, counts, num_active.expand(len(Y)))
        weight = weight * torch.exp(bend[:, None] * counts)[:, None, :, None]
        total = weight.sum(2, keepdim=True)
    mean, once = (torch.stack([counts, (counts == 1).to(counts)]) @ weight / total).unbind(2)
    noise_var = (seen.T * (1 - seen.onsager)).mean(1).clamp(min=0)
    return Found(mean, once, torch.complex(*seen.R.chunk(2, dim=2)), noise_var, weight, total, counts)


def towards_sum(
    weight: Float[Tensor, "slots zones rows codewords"], counts: Float[Tensor, " rows"], total: Float[Tensor, " slots"]
) -> Float[Tensor, " slots"]:
    r"""Return the $\mu$ of every slot with which counts of weights $w\,e^{\mu m}$ add up to its total on average.

    Counts that must add up are Poisson counts, given their sum. That is what $\mu$ stands for: with many codewords each
    one sees the sum as a price. Newton's method finds it; the last step carries the gradient.
    """

    def moved(mu: Tensor, weight: Tensor) -> Tensor:
        powers = torch.exp(mu[:, None] * counts)
        rows = torch.stack([powers, powers * counts, powers * counts.square()], 1)
        zeroth, first, second = (rows[:, None] @ weight).unbind(2)
        mean = first / zeroth
        variance = (second / zeroth - mean.square()).sum((1, 2)).clamp(min=LEAST_OPEN)
        return (mu + ((total - mean.sum((1, 2))) / variance).clamp(-1, 1)).clamp(-MOST_BENT, MOST_BENT)

    mu = torch.zeros_like(total)
    for _ in range(NEWTON - 1):
        mu = moved(mu, weight.detach())
    return moved(mu, weight)


def _pairs(real: Tensor, imag: Tensor) -> Float[Tensor, "slots access_points pairs twice_uses"]:
    """Return rows whose products with [C.real, C.imag] are the real parts of what is heard behind C^H, then the others."""
    return torch.cat([torch.cat([real, imag], dim=3), torch.cat([imag, -real], dim=3)], dim=2)


def _sent(X: Float[Tensor, "slots access_points pairs words"], words: Tensor) -> Tensor:
    """Return what the codewords add up to, in the rows of `_pairs`."""
    parts = (X @ words).unflatten(3, (2, -1)).unflatten(2, (2, -1))
    real = parts[:, :, 0, :, 0] - parts[:, :, 1, :, 1]
    return _pairs(real, parts[:, :, 0, :, 1] + parts[:, :, 1, :, 0])


@dataclass(frozen=True)
class _Seen:
    """What one iteration sees."""

    R: Float[Tensor, "slots access_points pairs words"]
    T: Float[Tensor, "slots access_points"]
    weight: Float[Tensor, "slots zones rows codewords"]
    """Up to `total`."""
    total: Float[Tensor, "slots zones 1 codewords"]
    phi: Float[Tensor, "slots access_points words"]
    onsager: Float[Tensor, "slots access_points"]


def _look(
    Z: Tensor,
    X: Tensor,
    words: Tensor,
    log_prior: Tensor,
    power: Tensor,
    floor: float,
    variance: Tensor,
    trust: Tensor,
) -> _Seen:
    """Form every codeword's pseudo-channel to each access point, and weigh its counts by all of them."""
    (slots, sites, pairs, _), zones = Z.shape, len(power)
    antennas = pairs // 2
    T = Z.square().mean((2, 3)).mul_(2).clamp_(min=floor) * variance  # every number is in Z twice
    R = torch.addmm(X.flatten(0, 2), Z.flatten(0, 2), words.T).view_as(X)
    u = R.square().sum(2).unflatten(2, (zones, -1)).transpose(1, 2).flatten(0, 1)  # [slots·zones, b, codewords]
    inverse = (T[:, None, None] + power).reciprocal()  # [slots, zones, rows, b]
    weight = (log_prior + trust * antennas * inverse.log().sum(3, keepdim=True)).flatten(0, 1)
    weight = weight.baddbmm_(trust * inverse.flatten(0, 1), u, alpha=-1)
    weight = weight.sub_(weight.detach().amax(1, keepdim=True)).clamp_(min=MIN_LOG_WEIGHT).exp_()
    phi = (power * inverse).transpose(2, 3)
    rows = torch.cat([torch.ones_like(phi[:, :, :1]), phi, phi.square()], dim=2).flatten(0, 1)
    total, first, second = (rows @ weight).split([1, sites, sites], dim=1)  # one product for three sums over rows
    first, second = first / total, second / total
    spread = (second - first.square()).clamp_(min=0)  # rounding can leave less than nothing
    per_slot = (slots, zones, sites, -1)
    onsager = (first + u * spread / (antennas * T).repeat_interleave(zones, 0)[:, :, None]).view(per_slot).sum((1, 3))
    mean = first.view(per_slot).transpose(1, 2).flatten(2)
    return _Seen(
        R, T, weight.unflatten(0, (-1, zones)), total.unflatten(0, (-1, zones)), mean, onsager / (Z.shape[3] // 2)
    )
