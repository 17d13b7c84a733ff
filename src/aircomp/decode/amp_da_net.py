r"""AMP-DA-Net: message passing unrolled into layers, with learned scalars and a small CNN in each (Sec. III-E).

    y ──► output_block ──► z, v ──► pseudo_channel ──► R, V ──► tempered_posterior ──► m, v ──► refine ──► x_hat, nu ──┐
               ▲  γ, η                 β                 ▲  τ              │              ζ, CNN                       │
               │                                  λ, α, σ² ◄── EM ◄────────┘                                           │
               └───────────────────────────────────────────────────────────────────────────────────────────────────────┘

The scalars start where this is GAMP (`aircomp.decode.gamp`): γ = β = τ = 1, the gates of damping and EM nearly shut, and a
CNN that corrects nothing. Rates and noise belong to the round: EM pools all slots it is given, a layer at a time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field, field_validator
from torch import Tensor, nn

from aircomp import rng as rngs
from aircomp.decode.amp_da import exact_counts, noise_per_slot
from aircomp.decode.base import Decoded, check_codebook, check_received
from aircomp.decode.cnn import Cnn, Workspace
from aircomp.decode.estimate import RoundEstimate, estimate_round
from aircomp.decode.gamp import MIN_NOISE, AmpState, Gamp, PreparedCodebook, output_block, pseudo_channel, start
from aircomp.decode.prior import Posterior, log_odds_spike, log_odds_truncated, reach_for
from aircomp.decode.rounding import conclude
from aircomp.decode.tempered import tempered_posterior
from aircomp.settings import Settings

# Gates (sigmoids) at the start. ζ is the paper's. Those of damping and EM are not given there: nearly shut, so that the
# network begins as GAMP, yet open enough for a gradient.
CNN_GATE, SMALL_GATE = 0.85, 0.02
MIN_RATE = 1e-9  # keeps log λ finite where a posterior underflows; a codeword chosen once in 1e9 slots
MIN_VARIANCE = 1e-8  # of counts: the square root of none has no slope, and the EM's confidence no bound
MIN_ACTIVITY = 1e-6  # α stays this far from 0 and 1, where log-odds are infinite
FLAT = 1e-3  # added to the spread of log λ: equal rates are all zero after standardising, not rounding errors


class AmpDaNetSettings(Settings):
    """The network's shape; its sizes do not depend on the codebook."""

    num_layers: int = Field(default=10, ge=1)
    """Unrolled iterations (paper: 10)."""
    filters: int = Field(default=32, ge=1)
    """Channels of the CNN (paper: 32)."""
    kernel: int = Field(default=3, ge=1)
    """Codewords a convolution sees, an odd number (paper: 3)."""
    cnn: bool = True
    """Without it a layer has eight scalars and nothing else."""
    order: Literal["updated", "paper"] = "updated"
    """Residual and variance of the input block: those just updated, or the previous ones as the paper's text has it."""
    prior: Literal["poisson", "spike", "truncated"] = "poisson"
    """Plain Poisson (α = 1), the paper's spike and Poisson slab, or a spike and a slab without zero."""
    coupling: Literal["round", "slot"] = "round"
    """Whether EM refines one λ and σ² for the slots of a round, or one for each slot (the paper)."""

    @field_validator("kernel")
    @classmethod
    def _odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError("expected an odd number, so that a convolution has a middle")
        return kernel


@dataclass(frozen=True)
class NetOutput:
    """What the network says of some slots of one round; gradients flow through all of it."""

    mean: Float[Tensor, "slots codewords"]
    """Counts after the last layer, neither clipped nor rounded."""
    num_active_hat: Float[Tensor, ""]
    """Σλ, averaged over slots if each has its own."""
    noise_var: Float[Tensor, " slots"]


@dataclass(frozen=True)
class Belief:
    """What EM refines from layer to layer; one row for all slots where the round shares it."""

    log_rate: Float[Tensor, "#slots codewords"]
    activity: Float[Tensor, "#slots codewords"]
    noise_var: Float[Tensor, "slots 1"]

    def rows(self, rows: slice) -> "Belief":
        """Return the part of some slots."""
        log_rate, activity = (t if len(t) == 1 else t[rows] for t in (self.log_rate, self.activity))
        return Belief(log_rate, activity, self.noise_var[rows])


@dataclass(frozen=True)
class Evidence:
    """What a layer's posterior tells EM: sums over the slots of a chunk, or its slots if each keeps to itself."""

    mean: Float[Tensor, "#slots codewords"]
    var: Float[Tensor, "#slots codewords"]
    activity: Float[Tensor, "#slots codewords"]
    noise: Float[Tensor, "#slots 1"]


class Scalars(NamedTuple):
    """The learned scalars of a layer, within their ranges."""

    gain: Tensor
    """γ of the output block, in [0.3, 2]."""
    damping: Tensor
    """η of the output block."""
    precision: Tensor
    """β of the input block, in [0.5, 2]."""
    temperature: Tensor
    """τ of the posterior, in [e⁻², e²]."""
    cnn_gate: Tensor
    """ζ: how much of the CNN's correction is taken."""
    rate_gate: Tensor
    """Scales the confidence step of λ; one is the paper's."""
    activity_gate: Tensor
    """How much of the posterior activity goes into α."""
    noise_gate: Tensor
    """s_σ: how far σ² moves, in the log domain."""


class AmpDaNet(nn.Module):
    """The unrolled decoder. It holds no codebook: one decoder's codebook is trained, stored and checked beside it.

    Args:
        settings: The network's shape.
        rng: Where the CNN's first weights come from; the same ones each time if not given.
    """

    def __init__(self, settings: AmpDaNetSettings, *, rng: torch.Generator | None = None):
        super().__init__()
        rng = rngs.generator(0, "amp-da-net") if rng is None else rng
        self.settings = settings
        for name in Scalars._fields:
            first = {"cnn_gate": _logit(CNN_GATE)}.get(name, _logit(SMALL_GATE))
            first = 0.0 if name in ("gain", "precision", "temperature") else first
            self.register_parameter(name, nn.Parameter(torch.full((settings.num_layers,), first)))
        convolutions = [Cnn(settings.filters, settings.kernel, rng=rng) for _ in range(settings.num_layers)]
        self.cnn = nn.ModuleList(convolutions if settings.cnn else [])

    def scalars(self, like: Tensor) -> list[Scalars]:
        """Return every layer's scalars, mapped into their ranges; a raw value of zero is γ = β = τ = 1."""
        raw = {name: getattr(self, name).to(like) for name in Scalars._fields}
        mapped = {name: torch.sigmoid(value) for name, value in raw.items() if name.endswith(("gate", "damping"))}
        mapped["gain"] = _centred_tanh(raw["gain"], 0.3, 2.0)
        mapped["precision"] = _centred_tanh(raw["precision"], 0.5, 2.0)
        # bounded, so that neither the reach of the table nor its exponents run away
        mapped["temperature"] = torch.exp(2 * torch.tanh(raw["temperature"] / 2))
        return [Scalars(*layer) for layer in zip(*(mapped[name].unbind() for name in Scalars._fields), strict=True)]

    def forward(
        self,
        received: Float[Tensor, "slots uses"],
        codebook: Float[Tensor, "codewords uses"],
        popularity: Float[Tensor, " codewords"],
        *,
        num_active: float | None = None,
        noise_var: Float[Tensor, " slots"] | None = None,
        noise: Literal["round", "slot"] = "round",
    ) -> NetOutput:
        """Decode slots of one round; differentiable in everything but the estimates that start it.

        Args:
            received: Slots of one round, all of those that share what EM learns.
            codebook: Unit-norm codewords, one a row.
            popularity: The base station's distribution over codewords.
            num_active: Number of active devices, if known; EM then leaves it.
            noise_var: Noise variance of every slot, if known; EM then leaves it.
            noise: Whether an estimated noise variance is one for the `round` or follows the power of each `slot`.
        """
        popularity = check_received(received, popularity, codebook).to(received)
        given = None if noise_var is None else noise_per_slot(noise_var, received)
        with torch.no_grad():
            mean_noise = None if given is None else float(given.double().mean())
            shared = estimate_round(received, popularity, codebook, num_active=num_active, noise_var=mean_noise)
            spread = Gamp(codebook.detach(), noise=noise)._spread(received, shared.noise_var)
        return self.unroll(
            received,
            codebook,
            shared.rate,
            spread if given is None else given,
            hold_rate=num_active is not None,
            hold_noise=given is not None,
        )

    def unroll(
        self,
        received: Float[Tensor, "slots uses"],
        codebook: Float[Tensor, "codewords uses"],
        rate: Float[Tensor, " codewords"],
        noise_var: Float[Tensor, " slots"],
        *,
        hold_rate: bool = False,
        hold_noise: bool = False,
        chunk: int | None = None,
    ) -> NetOutput:
        """Run all layers from given rates and noise.

        Args:
            received: Slots of one round.
            codebook: Unit-norm codewords, one a row.
            rate: Expected count of every codeword in a slot.
            noise_var: Noise variance of every slot.
            hold_rate: Keep the sum of the rates, the number of devices.
            hold_noise: Keep the noise variances.
            chunk: Slots computed at a time; bounds the temporaries, changes nothing else. None: all of them.
        """
        if len(received) == 0 or not rate.any():  # nobody sends; zero, but still part of autograd's graph
            return NetOutput(0 * (received @ codebook.mT), rate.sum(), noise_var)
        book, settings, scalars = PreparedCodebook.of(codebook), self.settings, self.scalars(received)
        chunks = [slice(i, i + (chunk or len(received))) for i in range(0, len(received), chunk or len(received))]
        belief = initial_belief(rate, noise_var)
        states = [initial_state(received[rows], rate, settings.order) for rows in chunks]
        reaches = _reaches(states[0], book, noise_var, rate, scalars)
        limit, workspace = max(1.0, float(rate.sum())), Workspace()
        total = rate.sum().log() if hold_rate else None
        for i, (k, reach) in enumerate(zip(scalars, reaches, strict=True)):
            evidence = []
            for part, rows in enumerate(chunks):
                known, y = belief.rows(rows), received[rows]
                s, R, V = message_passing(states[part], y, book, known, k, settings.order)
                post = posterior(R, V, known, k, reach, settings.prior)
                x_hat = post.mean
                if settings.cnn:
                    x_hat = refine(post, R, V, known, k, self.cnn[i], limit, workspace)
                evidence.append(gather(post, s, y, known, settings.coupling))
                states[part] = replace(s, x_hat=x_hat, nu=post.var)
            belief = expectation_maximisation(belief, pool(evidence, len(received), settings.coupling), k, total)
            if hold_noise:
                belief = replace(belief, noise_var=noise_var[:, None])
        mean = torch.cat([s.x_hat for s in states])
        return NetOutput(mean, belief.log_rate.exp().sum(1).mean(), belief.noise_var[:, 0])


class AmpDaNetDecoder:
    """A trained network with its codebook, as a decoder.

    Args:
        net: The network.
        codebook: Unit-norm codewords, one a row: those the network was trained with.
        noise: Whether the noise variance is one for the `round`, or follows the power of each `slot`.
        chunk: Slots computed at a time; bounds the temporaries, changes nothing else.
    """

    def __init__(
        self,
        net: AmpDaNet,
        codebook: Float[Tensor, "codewords uses"],
        *,
        noise: Literal["round", "slot"] = "round",
        chunk: int = 256,
    ):
        self.net, self.codebook, self.chunk = net, check_codebook(codebook), chunk
        self._gamp = Gamp(codebook, noise=noise, chunk=chunk)

    @torch.no_grad()
    def decode(
        self,
        received: Float[Tensor, "slots uses"],
        popularity: Float[Tensor, " codewords"],
        *,
        num_active: float | None = None,
        noise_var: float | Float[Tensor, " slots"] | None = None,
        bs_indices: Int[Tensor, " slots"] | None = None,
        slot_layers: Int[Tensor, " slots"] | None = None,
        quant_codebook: Float[Tensor, "codewords fragment"] | None = None,
    ) -> Decoded:
        """Estimate the counts of every slot; side information is not used."""
        popularity = check_received(received, popularity, self.codebook).to(received)
        codebook = self.codebook.to(received)
        given = None if noise_var is None else noise_per_slot(noise_var, received)
        exact = exact_counts(received, codebook)
        if exact is not None:
            return conclude(exact, noise_per_slot(0, received) if given is None else given, num_active)
        shared, noise = self._estimate(received, popularity, codebook, num_active, given)
        out = self.net.unroll(
            received,
            codebook,
            shared.rate,
            noise,
            hold_rate=num_active is not None,
            hold_noise=given is not None,
            chunk=self.chunk,
        )
        total = float(out.num_active_hat) if num_active is None else num_active
        return conclude(out.mean.clamp_min(0), out.noise_var, total)

    def _estimate(
        self, received: Tensor, popularity: Tensor, codebook: Tensor, num_active: float | None, given: Tensor | None
    ) -> tuple[RoundEstimate, Float[Tensor, " slots"]]:
        """Estimate as GAMP does, from all slots and a pilot decoding of some."""
        mean_noise = None if given is None else float(given.double().mean())
        shared = estimate_round(received, popularity, codebook, num_active=num_active, noise_var=mean_noise)
        if num_active is None or given is None:
            shared = self._gamp._refine(received, shared, given)
        return shared, self._gamp._spread(received, shared.noise_var) if given is None else given


def initial_belief(rate: Float[Tensor, " codewords"], noise_var: Float[Tensor, " slots"]) -> Belief:
    """Return what EM starts from: the round's estimates, the activity tied to the rates."""
    log_rate = rate.clamp(min=MIN_RATE).log()[None]
    return Belief(log_rate, tied_activity(log_rate), noise_var[:, None])


def initial_state(
    y: Float[Tensor, "slots uses"], rate: Float[Tensor, " codewords"], order: Literal["updated", "paper"]
) -> AmpState:
    """Return the state before the first layer (Sec. III-E, initialisation): GAMP's, or the paper's zeros and ones."""
    s = start(y, rate[None])
    if order == "paper":
        return replace(s, x_hat=torch.zeros_like(s.x_hat), nu=torch.ones_like(s.nu))
    return s


def message_passing(
    s: AmpState,
    y: Float[Tensor, "slots uses"],
    book: PreparedCodebook,
    belief: Belief,
    k: Scalars,
    order: Literal["updated", "paper"],
) -> tuple[AmpState, Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]]:
    """Run the output block and the pseudo-channel of the input block; return the state, R and V (Sec. III-E)."""
    noise = belief.noise_var.clamp(min=MIN_NOISE)
    updated = output_block(s, y, book, noise, k.gain, k.damping)
    R, V = pseudo_channel(updated if order == "updated" else s, y, book, noise, k.precision)
    return updated, R, V


def posterior(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    belief: Belief,
    k: Scalars,
    reach: int,
    prior: Literal["poisson", "spike", "truncated"],
) -> Posterior:
    """Return the tempered posterior moments of the counts (Sec. III-E, input block)."""
    log_odds = None
    if prior != "poisson":
        form = log_odds_spike if prior == "spike" else log_odds_truncated
        log_odds = form(belief.log_rate.exp(), belief.activity)
    return tempered_posterior(R, V, belief.log_rate, k.temperature, reach=reach, log_odds=log_odds)


def refine(
    post: Posterior,
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    belief: Belief,
    k: Scalars,
    cnn: nn.Module,
    limit: float,
    workspace: Workspace,
) -> Float[Tensor, "slots codewords"]:
    r"""Add the CNN's gated correction to the posterior mean (Sec. III-E, input block, second half).

    $$\hat x = (1-\zeta)\,m + \zeta\,\tilde x, \qquad \tilde x = m + \mathrm{CNN}(\Phi)$$

    The CNN predicts what to add to $m$ and begins with nothing, so that the start is GAMP whatever the gate. No
    correction exceeds the number of devices: a bound that training never meets, but signals far from it may.
    """
    doubt = post.var.clamp(min=MIN_VARIANCE).sqrt()
    features = [R, V.sqrt(), post.mean, doubt, belief.activity, standardised(belief.log_rate)]
    return post.mean + (k.cnn_gate * cnn(features, workspace)).clamp(-limit, limit)


def standardised(log_rate: Float[Tensor, "#slots codewords"]) -> Float[Tensor, "#slots codewords"]:
    """Return log λ with mean zero and deviation one over the codewords: popularity without the number of devices."""
    centred = log_rate - log_rate.mean(1, keepdim=True)
    return centred * (centred.square().mean(1, keepdim=True) + FLAT**2).rsqrt()


def tied_activity(log_rate: Float[Tensor, "#slots codewords"]) -> Float[Tensor, "#slots codewords"]:
    """Return α = 1 − e^(−λ), the probability that a Poisson count is above zero."""
    return -torch.expm1(-log_rate.exp())


def gather(
    post: Posterior,
    s: AmpState,
    y: Float[Tensor, "slots uses"],
    belief: Belief,
    coupling: Literal["round", "slot"],
) -> Evidence:
    r"""Collect what EM needs of a layer (Sec. III-E, EM updates).

    The noise proposal is the posterior expectation of the noise energy given $z \sim \mathcal N(z, v)$,
    $\bigl(\tfrac{\sigma^2}{\sigma^2+v}\bigr)^2 (y-z)^2 + \tfrac{v\sigma^2}{\sigma^2+v}$, averaged over the channel uses.
    """
    noise = belief.noise_var.clamp(min=MIN_NOISE)
    share = noise / (noise + s.v)
    energy = ((share * (y - s.z)).square() + share * s.v).mean(1, keepdim=True)
    found = (*post, energy)
    if coupling == "round":
        # in double precision: the same whatever the chunk
        found = tuple(t.sum(0, keepdim=True, dtype=torch.float64) for t in found)
    return Evidence(*found)


def pool(parts: Sequence[Evidence], num_slots: int, coupling: Literal["round", "slot"]) -> Evidence:
    """Average over the slots of the round, in their order; or only put the chunks together."""
    fields = [[getattr(p, name) for p in parts] for name in ("mean", "var", "activity", "noise")]
    if coupling == "slot":
        return Evidence(*(torch.cat(field) for field in fields))
    return Evidence(*(torch.stack(field).sum(0) / num_slots for field in fields))


def expectation_maximisation(
    belief: Belief, evidence: Evidence, k: Scalars, log_total: Float[Tensor, ""] | None
) -> Belief:
    r"""Move rates, activity and noise towards what the posterior says (Sec. III-E, EM updates).

    $$\log\lambda \mathrel{+}= \rho_\lambda(\log\hat\lambda - \log\lambda), \quad \rho_\lambda = g\,\tfrac{c}{1+c}, \quad
    c = \mathrm{mean}_j\, \bar m_j^2 / \bar v_j$$

    `log_total` is the logarithm of the number of devices where that is known: the rates keep their sum.
    """
    mean, var, active, noise = (getattr(evidence, f).to(belief.log_rate) for f in ("mean", "var", "activity", "noise"))
    proposal = mean.clamp(min=MIN_RATE)
    confidence = (proposal.square() / var.clamp(min=MIN_VARIANCE)).mean(1, keepdim=True)
    step = k.rate_gate * confidence / (1 + confidence)
    log_rate = belief.log_rate + step * (proposal.log() - belief.log_rate)
    if log_total is not None:
        log_rate = log_rate - log_rate.logsumexp(1, keepdim=True) + log_total
    activity = torch.lerp(tied_activity(log_rate), active, k.activity_gate).clamp(MIN_ACTIVITY, 1 - MIN_ACTIVITY)
    return Belief(log_rate, activity, _merge_noise(belief.noise_var, noise, k.noise_gate))


def _merge_noise(
    noise_var: Float[Tensor, "slots 1"], proposal: Float[Tensor, "#slots 1"], gate: Tensor
) -> Float[Tensor, "slots 1"]:
    """Move the noise towards the proposal in the log domain; one for the round moves all slots by the same factor."""
    now = noise_var if len(proposal) == len(noise_var) else noise_var.mean(dtype=torch.float64).to(noise_var)
    tiny = torch.finfo(noise_var.dtype).tiny  # of a silent slot
    return noise_var * ((proposal.clamp(min=tiny).log() - now.clamp(min=tiny).log()) * gate).exp()


def _reaches(
    s: AmpState, book: PreparedCodebook, noise_var: Tensor, rate: Tensor, scalars: Sequence[Scalars]
) -> list[int]:
    """Return how many counts either side of the mode matter in each layer.

    The pseudo-channels are widest at the start, where the counts are as unsure as the prior.
    """
    widest = float(noise_var.max().clamp(min=MIN_NOISE) + (s.nu[0] @ book.rows_squared).max())
    most = max(4, math.ceil(float(rate.sum())))
    stretch = torch.stack([k.temperature / k.precision for k in scalars]).tolist()
    return [reach_for(widest * factor, max_count=most) for factor in stretch]


def _centred_tanh(raw: Tensor, low: float, high: float) -> Tensor:
    """Map the reals onto [low, high], zero onto one (the paper's centred tanh, moved so that neutral is the middle)."""
    centre, half = (high + low) / 2, (high - low) / 2
    return centre + half * torch.tanh(raw + math.atanh((1 - centre) / half))


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))
