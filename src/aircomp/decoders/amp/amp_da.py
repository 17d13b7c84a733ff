r"""AMP-DA, the baseline: MD-AirComp's decoder (Qiao et al. 2024) as the authors of AMP-DA-Net run it (Tarizzo et al. 2025).

Generalised approximate message passing (the paper, Sec. III-E, output and input block, without the learned parts) under
the prior $(1-\alpha)\delta_0 + \alpha\,\mathcal U\{1, \dots, 16\}$. It is told neither the popularity nor the number of
devices: $\alpha$ and the noise variance $\sigma^2$ start at constants, and every iteration replaces them by what it sees.

    a round's slots ──► batches of 64 consecutive ones, which share α (one a codeword), σ² and the rule for stopping

    x̂, ν ──► output block ──► z, v ──► input block ──► R, ψ ──► posterior ──► x̂, ν, α, σ²      up to 50 times

Batches know nothing of each other, so several are computed at once. The numbers are those of the authors' `amp_da`
(github.com/tonytarizzo/AMP-DA-Net, commit 3b886bf), which `tests/decoders/reference/` holds. There is one exception: in
float32 their bound of $1 - 10^{-10}$ on $\alpha$ rounds to one, and a codeword that reaches it is in use for good. Here
$1 - \alpha$ is kept beside $\alpha$, so that float32 follows float64.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aircomp.common.threads import spread
from aircomp.decoders.amp.slab import slab_moments, start_activity
from aircomp.decoders.base import BaseDecoder, Decoded, Observation, check_codebook
from aircomp.decoders.heard import MIN_VAR, hear
from aircomp.decoders.kernels import native
from aircomp.decoders.settings import AmpDaSettings

LARGEST = 16
"""M, the largest count of the prior, as in the authors' code, however many devices there are."""
PATIENCE = 15
"""Iterations before a residual that rises ends a batch."""
CHUNK = 512  # slots computed at a time, or one batch: bounds the temporaries, changes nothing else
_START_NOISE = 100.0  # σ² before the first iteration: trust the prior first
_MIN_ACTIVITY = 1e-10  # α stays so far from 0 and 1, and can still change its mind
_MAX_STATE = 1e9  # of z: message passing that explodes stays finite; no signal within range comes near

OfCodewords = Float[Tensor, "batches slots codewords"]
"""A number for every codeword of every slot of some batches."""
OfUses = Float[Tensor, "batches slots uses"]
"""A number for every channel use of every slot of some batches."""


class AmpDa(BaseDecoder):
    """MD-AirComp's decoder, as the authors of AMP-DA-Net run it.

    Args:
        codebook: Unit-norm codewords, one a row.
        settings: Its options.
    """

    passes = 50

    def __init__(self, codebook: Float[Tensor, "codewords uses"], settings: AmpDaSettings | None = None):
        self.codebook, self.settings = check_codebook(codebook), settings or AmpDaSettings()

    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot; the popularity plays no part, the number of devices only in rounding."""
        heard = hear(self.codebook, seen)
        exact = heard.exact()
        if exact is not None:  # a round without noise: what is not explained is at least 100 dB below the signal
            return exact
        book, size = Book.of(heard.codebook), self.settings.batch_slots
        groups = list(_groups(heard.received, size))
        if heard.noise_var is None:
            settled = spread(lambda y: settle(y, book, self.settings), groups)
        else:
            noise = list(_groups(heard.noise_var[:, None], size))
            settled = spread(lambda y, given: settle(y, book, self.settings, given), groups, noise)
        mean = torch.cat([s.x_hat.flatten(0, 1) for s in settled])
        noise_var = torch.cat([s.sigma2.expand(*s.x_hat.shape[:2], 1).flatten() for s in settled])
        return heard.conclude(mean, noise_var, heard.num_active)


@dataclass(frozen=True)
class Book:
    """The codebook in the forms that message passing needs."""

    rows: Float[Tensor, "codewords uses"]
    squares: Float[Tensor, "codewords uses"]
    even: bool
    """Whether all squares are equal, as in a codebook of ±1: then the channel uses of a slot have one variance."""

    @classmethod
    def of(cls, codebook: Float[Tensor, "codewords uses"]) -> "Book":
        """Square the entries."""
        squares = codebook.square()
        return cls(codebook, squares, even=bool((squares == squares[0, 0]).all()))

    def over_uses(self, nu: OfCodewords) -> Float[Tensor, "batches slots #uses"]:
        """Return the variance of every channel use, or the one of all."""
        return nu.sum(2, keepdim=True) * self.squares[0, 0] if self.even else _times(nu, self.squares)

    def over_codewords(self, kappa: Float[Tensor, "batches slots #uses"]) -> Float[Tensor, "batches slots #codewords"]:
        """Return the precision of every codeword, or the one of all."""
        return kappa * self.squares[0].sum() if self.even else _times(kappa, self.squares.T)


@dataclass(frozen=True)
class AmpState:
    """Where the message passing of some batches stands (the names are the paper's)."""

    x_hat: OfCodewords
    nu: OfCodewords
    signal: OfUses
    """What `x_hat` would have sent."""
    z: OfUses
    v: Float[Tensor, "batches slots #uses"]
    """One for all channel uses of a slot if the codebook is even."""
    alpha: Float[Tensor, "batches 1 codewords"]
    idle: Float[Tensor, "batches 1 codewords"]
    """1 − α."""
    sigma2: Float[Tensor, " batches #slots 1"]
    """One a batch if it is learned, one a slot if it is given."""
    residual: Float[Tensor, " batches"]
    """Mean square of what `signal` leaves of the received one."""

    def select(self, batches: Bool[Tensor, " batches"]) -> "AmpState":
        """Return the state of some of the batches."""
        return AmpState(*(getattr(self, field.name)[batches] for field in fields(self)))


def start(y: OfUses, book: Book, noise_var: Float[Tensor, "batches slots 1"] | None = None) -> AmpState:
    """Return the state before the first iteration."""
    batches, slots, _ = y.shape
    activity = start_activity(*book.rows.shape)
    x_hat = y.new_full((batches, slots, len(book.rows)), activity * LARGEST / 2)
    return AmpState(
        x_hat=x_hat,
        nu=torch.ones_like(x_hat),
        signal=_times(x_hat, book.rows),
        z=y,
        v=torch.ones_like(y[..., :1] if book.even else y),
        alpha=torch.full_like(x_hat[:, :1], activity),
        idle=torch.full_like(x_hat[:, :1], 1 - activity),
        sigma2=y.new_full((batches, 1, 1), _START_NOISE) if noise_var is None else noise_var,
        residual=y.new_full((batches,), math.inf),
    )


def step(s: AmpState, y: OfUses, book: Book, damping: float, *, learn_noise: bool = True) -> AmpState:
    r"""Return the state after one iteration (Sec. III-E, output block, input block and EM with all gains at one).

    $$\tilde z = \hat xC - \frac{y - z}{\sigma^2 + v}\,\nu C^{\circ 2}, \quad
      \psi = \frac{1}{\sigma^2 + v} C^{\circ 2\top}, \quad
      R = \hat x + \Bigl(\frac{y - z}{\sigma^2 + v} C^\top\Bigr) \oslash \psi$$

    The output block divides by the old variance, the input block by the new one. The noise variance becomes the
    expected energy of the noise, the mean of $(y-z)^2/(1+v/\sigma^2)^2 + \sigma^2v/(v+\sigma^2)$ over the batch. The
    authors' floors of 1e-12 under $\sigma^2 + v$ and $\psi$ are left out: $\sigma^2$ alone is never below.
    """
    v_new = book.over_uses(s.nu)
    z_new = s.signal - (y - s.z) / (s.sigma2 + s.v) * v_new
    z, v = torch.lerp(z_new, s.z, damping).clamp_(-_MAX_STATE, _MAX_STATE), torch.lerp(v_new, s.v, damping)
    error, kappa = y - z, 1 / (s.sigma2 + v)
    psi = book.over_codewords(kappa)
    R = s.x_hat + _times(error * kappa, book.rows.T) / psi
    x_hat, nu, active, idle = posterior(R, psi, s.alpha, s.idle)
    signal, sigma2 = _times(x_hat, book.rows), s.sigma2
    if learn_noise:
        e = (error / (1 + v / (sigma2 + MIN_VAR))).square() + sigma2 * v / (v + sigma2 + MIN_VAR)
        sigma2 = e.mean((1, 2), keepdim=True).clamp_min(MIN_VAR)
    alpha, idle = (chance.mean(1, keepdim=True) for chance in (active, idle))
    return AmpState(x_hat, nu, signal, z, v, alpha, idle, sigma2, (y - signal).square().mean((1, 2)))


def posterior(
    R: OfCodewords,
    psi: Float[Tensor, "batches slots #codewords"],
    alpha: Float[Tensor, "batches 1 codewords"],
    idle: Float[Tensor, "batches 1 codewords"],
) -> tuple[OfCodewords, OfCodewords, OfCodewords, OfCodewords]:
    r"""Return mean and variance of counts seen as $R = x + \mathcal N(0, 1/\psi)$ (Sec. III-E, input block).

    The prior weight of zero is $1 - \alpha$, that of each other count $\alpha/16$. Also return the posterior chances that
    a count is above zero, and that it is zero.
    """
    evidence, slab_mean, slab_var = slab_moments(R, psi, LARGEST)
    log_odds = evidence.add_(alpha.log() - idle.log())
    active, idle = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
    x_hat = active * slab_mean
    nu = active * slab_var + idle * x_hat * slab_mean
    for chance in (active, idle):
        chance.clamp_(_MIN_ACTIVITY, 1 - _MIN_ACTIVITY)
    return x_hat, nu.clamp_min_(MIN_VAR), active, idle  # rounding can leave a variance slightly below zero


@dataclass(frozen=True)
class Settled:
    """What the iterations of some batches come to: all that the authors' function returns."""

    x_hat: OfCodewords
    """Soft counts; of a batch that was stopped, those from before its residual rose."""
    alpha: Float[Tensor, "batches codewords"]
    """Of the last iteration, as `sigma2`."""
    sigma2: Float[Tensor, " batches #slots 1"]
    iterations: Int[Tensor, " batches"]


def settle(
    y: OfUses, book: Book, settings: AmpDaSettings, noise_var: Float[Tensor, "batches slots 1"] | None = None
) -> Settled:
    """Iterate until each batch ends; those that have ended take no further part."""
    if y.numel() and native.ready(y, book.rows):
        return _settled(y, book, settings, noise_var)
    s, going = start(y, book, noise_var), torch.arange(len(y), device=y.device)
    found = Settled(s.x_hat.clone(), s.alpha[:, 0].clone(), s.sigma2.clone(), going.clone())
    for t in range(1, settings.max_iterations + 1):
        new = step(s, y, book, settings.damping, learn_noise=noise_var is None)
        rose = (new.residual >= s.residual) & (t > PATIENCE)
        ended = rose if t < settings.max_iterations else torch.ones_like(rose)
        if ended.any():
            kept = torch.where(rose[:, None, None], s.x_hat, new.x_hat)
            _put(found, going[ended], replace(new, x_hat=kept).select(ended), t)
            new, y, going = new.select(~ended), y[~ended], going[~ended]
            if len(going) == 0:
                break
        s = new
    return found


def _settled(
    y: OfUses, book: Book, settings: AmpDaSettings, noise_var: Float[Tensor, "batches slots 1"] | None
) -> Settled:
    """Iterate by the kernel, batch after batch."""
    activity = start_activity(*book.rows.shape)
    noise = y.new_full(y.shape[:2], _START_NOISE) if noise_var is None else noise_var[..., 0]
    found = [
        native.settle(
            book.rows,
            batch,
            (activity * LARGEST / 2, variances),
            activity,
            learn_noise=noise_var is None,
            iterations=settings.max_iterations,
            patience=PATIENCE,
            largest=LARGEST,
            damping=settings.damping,
            limit=_MAX_STATE,
            least_chance=_MIN_ACTIVITY,
            least=MIN_VAR,
        )
        for batch, variances in zip(y, noise, strict=True)
    ]
    x_hat, alpha, sigma2, iterations = zip(*found, strict=True)
    sigma2 = torch.stack(sigma2)[..., None]
    return Settled(
        torch.stack(x_hat),
        torch.stack(alpha),
        sigma2[:, :1] if noise_var is None else sigma2,
        torch.tensor(iterations, device=y.device),
    )


def _put(found: Settled, batches: Int[Tensor, " ended"], s: AmpState, t: int) -> None:
    """Write down how some batches ended."""
    found.x_hat[batches], found.alpha[batches], found.sigma2[batches] = s.x_hat, s.alpha[:, 0], s.sigma2
    found.iterations[batches] = t


def _groups(values: Float[Tensor, "slots any"], size: int) -> Iterator[Float[Tensor, "batches size any"]]:
    """Cut a round into batches of consecutive slots, as many at a time as fit in a chunk; a shorter last one is alone."""
    whole = len(values) // size
    if whole:
        yield from values[: whole * size].reshape(whole, size, -1).split(max(1, CHUNK // size))
    if len(values) % size:
        yield values[whole * size :][None]


def _times(left: Float[Tensor, "batches rows inner"], right: Float[Tensor, "inner columns"]) -> Tensor:
    """Return the product batch by batch: one of them all would round each row by how many others there are."""
    return torch.bmm(left, right.expand(len(left), -1, -1))
