"""The steps of generalised approximate message passing (GAMP), for every decoder that is made of them.

    y ──► output_block ──► z, v ──► pseudo_channel ──► R, V ──► posterior of the counts ──► x_hat, nu ──┐
               ▲                                                                                        │
               └────────────────────────────────────────────────────────────────────────────────────────┘

They are pure functions that autograd passes through, the codebook included: the unrolled network calls the same ones with
scalars of its own. Order within an iteration: the input block sees the residual and the variance that the output block has
just updated, as in GAMP (the paper's text uses the previous ones, and then the first residual is zero).
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.decoders.amp.prior import poisson_posterior, urn, variance
from aircomp.decoders.base import MAX_DEVICES, PerCodeword, PerUse
from aircomp.decoders.kernels import native

# Message passing is told at least this noise variance. Told of none at all it can lock into a wrong corner; with this
# much, integers (one apart, behind unit-norm codewords) are still told apart with certainty, exp(−1/(8·0.008)) ≈ 1e-7.
MIN_NOISE = 0.008
# Of z: message passing that explodes stays finite. No signal within range comes near.
MAX_STATE = 1e9


@dataclass(frozen=True)
class AmpState:
    """What one iteration hands to the next (Sec. III-E, initialisation)."""

    x_hat: PerCodeword
    nu: PerCodeword
    z: PerUse
    v: PerUse


@dataclass(frozen=True)
class PreparedCodebook:
    """A codebook and what every iteration needs of it; built in each forward pass so that gradients reach it."""

    rows: Float[Tensor, "codewords uses"]
    rows_squared: Float[Tensor, "codewords uses"]
    by_codeword: bool = False
    """Whether memory holds the slots of a codeword side by side in what is computed for every codeword of every slot."""

    @classmethod
    def of(cls, codebook: Float[Tensor, "codewords uses"], *, by_codeword: bool = False) -> "PreparedCodebook":
        """Prepare a codebook."""
        return cls(codebook, codebook.square(), by_codeword)

    def correlated(
        self, seen: Float[Tensor, "slots uses"], rows: Float[Tensor, "codewords uses"]
    ) -> Float[Tensor, "slots codewords"]:
        """Return the products of every slot with every row."""
        return (rows @ seen.mT).mT if self.by_codeword else seen @ rows.mT


def start(y: Float[Tensor, "slots uses"], rate: Float[Tensor, "#slots codewords"], agreement: float = 0.0) -> AmpState:
    """Return the state before the first iteration: the prior's moments, and no residual to correct for yet."""
    shape = (len(y), rate.shape[1])
    nu = variance(rate, agreement).expand(shape)
    return AmpState(x_hat=rate.expand(shape), nu=nu, z=y, v=torch.ones_like(y))


def output_block(
    s: AmpState,
    y: Float[Tensor, "slots uses"],
    book: PreparedCodebook,
    noise_var: Float[Tensor, "#slots 1"],
    gamma: Tensor | float = 1.0,
    eta: Tensor | float = 0.0,
) -> AmpState:
    r"""Refresh the measurement-domain mean and variance (Sec. III-E, output block).

    $$\tilde z = C\hat x - \gamma\, r \odot (C^{\odot 2}\nu \oslash d_{eff})$$

    `gamma` scales the Onsager term, `eta` keeps a part of the old state; one and zero are classical GAMP.
    """
    v_new = s.nu @ book.rows_squared
    d_eff = noise_var + s.v  # paper: d; renamed, d is the fragment length
    z_new = s.x_hat @ book.rows - gamma * (y - s.z) * v_new / d_eff
    z = torch.lerp(z_new, s.z, eta).clamp_(-MAX_STATE, MAX_STATE)
    return replace(s, z=z, v=torch.lerp(v_new, s.v, eta))


def pseudo_channel(
    s: AmpState,
    y: Float[Tensor, "slots uses"],
    book: PreparedCodebook,
    noise_var: Float[Tensor, "#slots 1"],
    beta: Tensor | float = 1.0,
) -> tuple[Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]]:
    r"""Return R and V such that each count is seen as R = x + N(0, V) (Sec. III-E, input block, first half).

    $$V = 1 \oslash (C^{\odot 2\top}\kappa), \quad R = \hat x + V \odot C^\top(\kappa \odot (y - z)), \quad
    \kappa = \beta \oslash (\sigma^2 + v)$$
    """
    kappa = beta / (noise_var + s.v)
    V = book.correlated(kappa, book.rows_squared).reciprocal()
    R = s.x_hat + V * book.correlated(kappa * (y - s.z), book.rows)
    return R, V


def pass_messages(
    s: AmpState,
    y: Float[Tensor, "slots uses"],
    book: PreparedCodebook,
    noise_var: Float[Tensor, "#slots 1"],
    gamma: Tensor | float = 1.0,
    eta: Tensor | float = 0.0,
    beta: Tensor | float = 1.0,
) -> tuple[AmpState, Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]]:
    """Run the output block and the pseudo-channel that it leads to; return the state, R and V."""
    s = output_block(s, y, book, noise_var, gamma, eta)
    return s, *pseudo_channel(s, y, book, noise_var, beta)


def iterate(
    y: Float[Tensor, "slots uses"],
    book: PreparedCodebook,
    noise_var: Float[Tensor, "#slots 1"],
    rate: Float[Tensor, "#slots codewords"],
    *,
    iterations: int,
    reach: int,
    agreement: float = 0.0,
) -> AmpState:
    """Run GAMP on slots whose noise variance and rates are known."""
    s = start(y, rate, agreement)
    if len(y) and native.ready(y, rate, noise_var, book.rows):
        options = {"iterations": iterations, "reach": reach, "most": MAX_DEVICES, "limit": MAX_STATE}
        before = (s.x_hat, s.nu, s.z, s.v)
        return AmpState(*native.iterate(book.rows, y, noise_var, before, urn(rate, agreement), **options))
    for _ in range(iterations):
        s, R, V = pass_messages(s, y, book, noise_var)
        x_hat, nu = poisson_posterior(R.clamp_(max=MAX_DEVICES), V, rate, reach=reach, agreement=agreement)
        s = replace(s, x_hat=x_hat, nu=nu)
    return s
