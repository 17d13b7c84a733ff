r"""The blocks of GAMP-Net's layer as pure functions, in the order in which a layer runs them (Sec. III-E).

    y ──► message_passing ──► R, V ──► posterior ──► m, v ──► refine ──► x_hat, nu ──► next layer
              γ, η, β          ▲           τ          │        ζ, CNN
                         λ, α, σ²  ◄── expectation_maximisation

"Belief" is what expectation maximisation (EM) refines: rates λ, activities α and noise variances σ². What EM learns belongs
to the round and moves all its slots alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.decoders.amp.prior import MAX_EXPONENT
from aircomp.decoders.amp.steps import MAX_STATE, MIN_NOISE, AmpState, PreparedCodebook, pass_messages
from aircomp.decoders.kernels import native
from aircomp.decoders.net.base import Moments
from aircomp.decoders.net.cnn import Cnn, Workspace
from aircomp.decoders.net.tempered import CountTable, tempered_posterior

MIN_RATE = 1e-9  # keeps log λ finite if somebody's rates hold a zero; a codeword chosen once in 1e9 slots
MIN_LOG_RATE = -46.0  # after EM: a rate of 1e-20, whose own logarithms and exponentials still have room in float32
MIN_VARIANCE = 1e-8  # of counts: the square root of none has no slope, and the confidence of EM no bound
MAX_CORRECTION = 3.0  # standard deviations of the posterior that the CNN may add
FLAT = 1e-3  # joins the spread of log λ: equal rates are zero after standardising, not magnified rounding errors


Scalar = Float[Tensor, ""]
Rates = Float[Tensor, "#slots codewords"]
"""For every slot, or one row for all."""
OneRow = Float[Tensor, "1 codewords"]
"""For all slots of a chunk, or of the round."""


class Scalars(NamedTuple):
    """The learned scalars of a layer, within their ranges."""

    gain: Scalar
    """γ of the output block, in [0.3, 2]."""
    damping: Scalar
    """η of the output block."""
    precision: Scalar
    """β of the input block, in [0.5, 2]."""
    temperature: Scalar
    """τ of the posterior, in [e⁻², e²]."""
    cnn_gate: Scalar
    """ζ: how much of the CNN's correction is taken."""
    rate_gate: Scalar
    """Scales the confidence step of λ; the paper has one."""
    activity_gate: Scalar
    """How much of the posterior activity goes into α."""
    noise_gate: Scalar
    """s_σ: how far σ² moves, in the log domain."""


@dataclass(frozen=True)
class Belief:
    """What EM refines from layer to layer; one row of rates and activities for all slots where the round shares them."""

    log_rate: Rates
    activity: Rates
    noise_var: Float[Tensor, "slots 1"]
    own_rates: bool = False
    """Whether slots that share a round have rates of their own."""


@dataclass(frozen=True)
class Evidence:
    """What a layer tells EM: summed over the slots of a chunk, or averaged over those of the round."""

    mean: OneRow
    var: OneRow
    activity: OneRow
    noise: Float[Tensor, "1 1"]
    noise_before: Float[Tensor, "1 1"]
    """What was believed of the noise."""
    rate_before: OneRow | None
    """What was believed of slots that share a round but have rates of their own; None if there are none such."""
    num_slots: int


def initial_belief(
    rate: Float[Tensor, "*slots codewords"], noise_var: Float[Tensor, " slots"], *, own_rates: bool = False
) -> Belief:
    """Return what EM starts from: the round's estimates, the activity tied to the rates."""
    log_rate = torch.atleast_2d(rate).clamp(min=MIN_RATE).log()
    return Belief(log_rate, tied_activity(log_rate), noise_var[:, None], own_rates)


def message_passing(
    s: AmpState, y: Float[Tensor, "slots uses"], book: PreparedCodebook, belief: Belief, k: Scalars
) -> tuple[AmpState, Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]]:
    """Run the output block and the first half of the input block; return the state, R and V.

    The paper's text gives the input block the residual and variance from before the output block. Starting from z = y
    that residual is zero and later ones lag; here it gets what the output block has just computed, as in GAMP.
    """
    return pass_messages(s, y, book, belief.noise_var.clamp(min=MIN_NOISE), k.gain, k.damping, k.precision)


def net_layer(k: Scalars, table: CountTable, cnn: Cnn) -> native.NetLayer:
    """Return what the compiled kernel computes a layer with."""
    return native.NetLayer(
        gain=float(k.gain),
        damping=float(k.damping),
        precision=float(k.precision),
        limit=MAX_STATE,
        temperature=float(k.temperature),
        reach=table.reach,
        log_factorials=table.log_factorials,
        gate=float(k.cnn_gate),
        weights=cnn.by_channel(table.log_factorials),
    )


def run_layer(
    s: AmpState,
    y: Float[Tensor, "slots uses"],
    belief: Belief,
    *,
    book: PreparedCodebook,
    k: Scalars,
    table: CountTable,
    cnn: Cnn,
    compiled: native.NetLayer | None,
    workspace: Workspace,
) -> tuple[AmpState, Evidence]:
    """Run a layer on a chunk, by one compiled kernel where there is one; return its state and what it tells EM."""
    if compiled is None:
        s, R, V = message_passing(s, y, book, belief, k)
        post = tempered_posterior(R, V, belief.log_rate, k.temperature, table)
        x_hat = refine(post, R, V, belief, k, cnn, workspace)
        return replace(s, x_hat=x_hat, nu=post.var), gather(post, s, y, belief)
    noise, state, prior = (
        belief.noise_var.clamp(min=MIN_NOISE),
        (s.x_hat, s.nu, s.z, s.v),
        (belief.log_rate, belief.activity),
    )
    state, sums = native.layer(book.rows, y, noise, state, prior, compiled)
    size = s.x_hat.shape[1]
    mean, var, activity, energy = sums[None].split([size, size, size, 1], dim=1)
    return AmpState(*state), _evidence(mean, var, activity, energy, belief)


def refine(
    post: Moments,
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    belief: Belief,
    k: Scalars,
    cnn: nn.Module,
    workspace: Workspace,
) -> Float[Tensor, "slots codewords"]:
    r"""Add the CNN's gated correction to the posterior mean (Sec. III-E, input block, second half).

    $$\hat x = (1-\zeta)\,m + \zeta\,\tilde x, \qquad \tilde x = m + \sqrt{v} \odot \mathrm{CNN}(\Phi)$$

    The paper's CNN predicts $\tilde x$ itself; from random weights that throws away what GAMP knows (accuracy .17
    instead of .76 at 5 dB). Here it predicts what to add to $m$, in standard deviations of the posterior, and begins
    with nothing. Where a count is certain there is nothing to add; without the √v the small errors of a CNN trained at all
    SNRs made message passing explode above 8 dB, and without a bound on the CNN single slots still did.
    """
    doubt = post.var.clamp(min=MIN_VARIANCE).sqrt()
    features = [R, V.sqrt(), post.mean, doubt, belief.activity, standardised(belief.log_rate)]
    return post.mean + k.cnn_gate * doubt * cnn(features, workspace).clamp(-MAX_CORRECTION, MAX_CORRECTION)


def standardised(log_rate: Float[Tensor, "#slots codewords"]) -> Float[Tensor, "#slots codewords"]:
    """Return log λ with mean zero and deviation one over the codewords: popularity without the number of devices."""
    centred = log_rate - log_rate.mean(1, keepdim=True)
    return centred * (centred.square().mean(1, keepdim=True) + FLAT**2).rsqrt()


def tied_activity(log_rate: Float[Tensor, "#slots codewords"]) -> Float[Tensor, "#slots codewords"]:
    """Return α = 1 − e^(−λ), the probability that a Poisson count is above zero."""
    return -torch.expm1(-log_rate.exp())


def gather(post: Moments, s: AmpState, y: Float[Tensor, "slots uses"], belief: Belief) -> Evidence:
    r"""Sum what EM needs of a chunk of slots (Sec. III-E, EM updates).

    For the noise, the posterior expectation of its energy where the signal is $\mathcal N(z, v)$, averaged over the uses:
    $\bigl(\tfrac{\sigma^2}{\sigma^2+v}\bigr)^2 (y-z)^2 + \tfrac{\sigma^2}{\sigma^2+v} v$.
    """
    noise = belief.noise_var.clamp(min=MIN_NOISE)
    share = noise / (noise + s.v)
    energy = (torch.addcmul(s.v, share, (y - s.z).square()) * share).mean(1, keepdim=True)
    # in double precision: the same whatever the chunk
    mean, var, activity, noise = (t.sum(0, keepdim=True, dtype=torch.float64) for t in (*post, energy))
    return _evidence(mean, var, activity, noise, belief)


def _evidence(mean: OneRow, var: OneRow, activity: OneRow, energy: Float[Tensor, "1 1"], belief: Belief) -> Evidence:
    """Add what was believed."""
    before = belief.noise_var.sum(0, keepdim=True, dtype=torch.float64)
    rate = belief.log_rate.exp().sum(0, keepdim=True, dtype=torch.float64) if belief.own_rates else None
    return Evidence(mean, var, activity, energy, before, rate_before=rate, num_slots=len(belief.noise_var))


def pool(parts: Sequence[Evidence]) -> Evidence:
    """Return what EM is told: the average over the slots of the round, chunk after chunk in their order."""
    num_slots = sum(part.num_slots for part in parts)

    def mean(name: str) -> Tensor:
        return reduce(torch.add, [getattr(part, name) for part in parts]) / num_slots

    rate_before = None if parts[0].rate_before is None else mean("rate_before")
    means = map(mean, ("mean", "var", "activity", "noise", "noise_before"))
    return Evidence(*means, rate_before=rate_before, num_slots=num_slots)


def expectation_maximisation(
    belief: Belief, evidence: Evidence, k: Scalars, *, log_total: Scalar, hold_noise: bool
) -> Belief:
    r"""Move rates, activities and noise towards what the posterior says (Sec. III-E, EM updates).

    $$\log\lambda \mathrel{+}= \rho_\lambda(\log\hat\lambda - \log\lambda), \quad \rho_\lambda = g\,\tfrac{c}{1+c}, \quad
    c = \mathrm{mean}_j\, \bar m_j^2 / \bar v_j$$

    The proposal $\hat\lambda$ averages the posterior means and, as one slot more, the current rate: a codeword that few
    slots happen to miss would otherwise be proposed a rate of zero, whose logarithm outweighs everything.

    Args:
        belief: What was believed.
        evidence: What this layer found.
        k: The gates: of λ, which the paper does not have (g = 1), of α and of σ².
        log_total: Logarithm of the number of devices, which is the sum of the rates and stays.
        hold_noise: Whether the noise is known.
    """
    mean, var, active = (getattr(evidence, f).to(belief.log_rate) for f in ("mean", "var", "activity"))
    expected = belief.log_rate
    if evidence.rate_before is not None:  # all slots move alike, as the round's mean does
        expected = evidence.rate_before.log().to(expected)
    proposal = (evidence.num_slots * mean + expected.exp()) / (evidence.num_slots + 1)
    confidence = (mean.square() / var.clamp(min=MIN_VARIANCE)).mean(1, keepdim=True)
    step = k.rate_gate * confidence / (1 + confidence)
    log_rate = belief.log_rate + step * (proposal.log() - expected)
    log_rate = (log_rate - log_rate.logsumexp(1, keepdim=True) + log_total).clamp(min=MIN_LOG_RATE)
    activity = torch.lerp(tied_activity(log_rate), active, k.activity_gate)
    noise_var = belief.noise_var
    if not hold_noise:
        now, found = (t.to(noise_var) for t in (evidence.noise_before, evidence.noise))
        noise_var = merge_noise(noise_var, now, found, k.noise_gate)
    return replace(belief, log_rate=log_rate, activity=activity, noise_var=noise_var)


def merge_noise(
    noise_var: Float[Tensor, "slots 1"],
    now: Float[Tensor, "1 1"],
    proposal: Float[Tensor, "1 1"],
    gate: Scalar,
) -> Float[Tensor, "slots 1"]:
    """Move the noise of all slots alike, as the round's goes from what it is now towards the proposal, in the log domain."""
    tiny = torch.finfo(noise_var.dtype).tiny  # of a silent slot
    change = (proposal.clamp(min=tiny).log() - now.clamp(min=tiny).log()) * gate
    return noise_var * change.clamp(max=MAX_EXPONENT).exp()
