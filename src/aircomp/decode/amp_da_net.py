r"""AMP-DA-Net, the paper's network: AMP unrolled into layers with learned scalars and a CNN in each (Sec. III-E).

    y ──► output_block ──► z, v ──► input_block ──► R, V ──► table of counts ──► m, var ──► CNN, gate ──► x_hat, nu
              γ, η                      β                      τ   ▲                          ζ
                                                      λ, α, σ² ────┘ ◄── expectation maximisation (EM) over a batch of slots

It is built in two forms, named in its settings. `paper` is the text. `authors` is what the authors' published code computes,
which differs from the text in the residual of the input block, the weight of zero, the CNN's features, EM, and the rounding.
`docs/paper/divergences.md` lists every difference with the test that pins it. Our own network is `aircomp.decode.gamp_net`.

Slots of one batch share rates λ and activities α, so a result depends on the batches: 64 slots in training, at most 512
consecutive ones of a round in decoding, as in the authors' code.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from aircomp.common import rng as rngs
from aircomp.common.settings import Settings
from aircomp.common.snr import SnrReference
from aircomp.decode.base import BaseDecoder, Decoded, Observation, PerCodeword, PerUse, check_codebook, check_received
from aircomp.decode.count_table import count_moments
from aircomp.decode.heard import hear, noise_per_slot
from aircomp.decode.pilot import PilotEstimator
from aircomp.decode.prior import Moments, log_odds_spike
from aircomp.decode.refit import authors_counts
from aircomp.decode.trace import NetState

NUM_FEATURES = 6
BLOCK = 64  # slots that pass through all convolutions before the next ones do: their maps stay in cache
CHUNK = 512  # slots decoded as one batch, the authors'
START_DEVICES, START_NOISE = (
    10.0,
    100.0,
)  # K and σ² before the first layer; the paper gives neither, these are the authors'
MIN_COUNTS = 8  # the table goes at least so far: from 0 to max(8, 2K) = 20, fixed at the start, the authors'
# The authors' clamps. Of variances, rates and popularity; of α, whose odds are finite; and of the posterior's activity.
TINY, MIN_ACTIVITY, MIN_POSTERIOR = 1e-12, 1e-6, 1e-10
FLAT = 1e-6  # ε of the standardised log λ; the paper gives none
MAX_STATE = 1e9  # of x̂ and z: layers that explode stay finite; no signal within range comes near

SCALARS = {
    "gain": 0.0,
    "precision": 0.0,
    "damping": math.log(0.3 / 0.7),
    "cnn_gate": math.log(0.85 / 0.15),
    "temperature": math.log(1.25),
    "activity_gate": math.log(0.2 / 0.8),
    "noise_gate": 0.0,
}
"""Learned scalars of a layer and their raw start. The paper gives ζ = .85; the others are the authors'."""
STEPS = {"total_step": 0.0, "popularity_step": 0.0}
"""The authors' form has two more: steps of K and π."""


class AmpDaNetSettings(Settings):
    """The network's form and shape; its sizes do not depend on the codebook."""

    form: Literal["paper", "authors"] = "paper"
    """paper: the text, literally. authors: what the authors' published code computes."""
    num_layers: int = Field(default=10, ge=1, le=1000)
    """Unrolled iterations (paper: 10)."""
    filters: int = Field(default=32, ge=1, le=4096)
    """Channels of the CNN (paper: 32)."""
    kernel: int = Field(default=3, ge=1, le=1023)
    """Codewords a convolution sees, an odd number (paper: 3)."""
    em: Literal["batch", "slot"] = "batch"
    """Whether EM refines λ and α for a batch of slots (the paper's equations) or for each slot (its remark on K)."""
    start: Literal["constants", "estimates"] = "constants"
    """K and σ² before the first layer: 10 and 100, the authors', for the paper gives none; or estimates from the round,
    this package's."""

    @field_validator("kernel")
    @classmethod
    def _odd(cls, kernel: int) -> int:
        if kernel % 2 == 0:
            raise ValueError("expected an odd number, so that a convolution has a middle")
        return kernel

    @model_validator(mode="after")
    def _authors_have_no_options(self) -> "AmpDaNetSettings":
        if self.form == "authors" and (self.em, self.start) != ("batch", "constants"):
            raise ValueError(
                'form = "authors" has em = "batch" and start = "constants"; leave them out, or set form = "paper"'
            )
        return self


@dataclass(frozen=True)
class Scalars:
    """The learned scalars of a layer, within their ranges."""

    gain: Tensor
    """γ of the output block, in (0.3, 2)."""
    precision: Tensor
    """β of the input block, in (0.5, 2)."""
    damping: Tensor
    """η of the output block."""
    cnn_gate: Tensor
    """ζ: how much of the CNN's estimate is taken."""
    temperature: Tensor
    """τ of the posterior."""
    activity_gate: Tensor
    """How much of the posterior activity goes into α."""
    noise_gate: Tensor
    """s_σ: how far σ² moves, in the log domain."""
    total_step: Tensor | None = None
    """s_K of the authors' form, in (0, 2), and one in the first layer."""
    popularity_step: Tensor | None = None
    """s_π of the authors' form."""


@dataclass(frozen=True)
class State:
    """What one layer hands to the next (Sec. III-E, initialisation)."""

    x_hat: PerCodeword
    nu: PerCodeword
    z: PerUse
    v: PerUse


@dataclass(frozen=True)
class Belief:
    """What EM refines: one row of rates and activities for every batch of slots, one noise variance a slot."""

    total: Float[Tensor, "batches 1"]
    popularity: Float[Tensor, "batches codewords"]
    rate: Float[Tensor, "batches codewords"]
    activity: Float[Tensor, "batches codewords"]
    noise_var: Float[Tensor, "slots 1"]


@dataclass(frozen=True)
class NetOutput:
    """What the network says of some slots of one round; gradients flow through all of it."""

    mean: PerCodeword
    """Counts after the last layer, not rounded."""
    total: Float[Tensor, " batches"]
    """Number of devices of every batch, before rounding: Σλ, in the authors' form K."""
    noise_var: Float[Tensor, " slots"]


Watch = Callable[[State, Belief], None]


class AmpDaNet(nn.Module):
    """The unrolled decoder. It holds no codebook: that is trained, stored and checked beside it.

    Args:
        settings: The network's form and shape.
        rng: Where the CNN's first weights come from; the same ones each time if not given.
    """

    def __init__(self, settings: AmpDaNetSettings, *, rng: torch.Generator | None = None):
        super().__init__()
        self.settings = settings
        rng = rngs.generator(0, "amp-da-net") if rng is None else rng
        for name, raw in (SCALARS | (STEPS if settings.form == "authors" else {})).items():
            self.register_parameter(name, nn.Parameter(torch.full((settings.num_layers,), raw)))
        self.cnn = nn.ModuleList(CountCnn(settings, rng=rng) for _ in range(settings.num_layers))

    def scalars(self, like: Tensor) -> list[Scalars]:
        """Return every layer's scalars, mapped into their ranges."""
        names = SCALARS | (STEPS if self.settings.form == "authors" else {})
        raw = {name: getattr(self, name).to(like) for name in names}
        mapped = {name: torch.sigmoid(value) for name, value in raw.items()}
        mapped["gain"] = 1.15 + 0.85 * torch.tanh(raw["gain"])
        mapped["precision"] = 1.25 + 0.75 * torch.tanh(raw["precision"])
        mapped["temperature"] = raw["temperature"].exp().clamp(min=1e-3)
        if self.settings.form == "authors":
            step = 2 * mapped["total_step"]
            mapped["total_step"] = torch.cat(
                [torch.ones_like(step[:1]), step[1:]]
            )  # the first layer believes what it finds
        return [Scalars(**{name: mapped[name][i] for name in names}) for i in range(self.settings.num_layers)]

    def forward(
        self,
        received: Float[Tensor, "slots uses"],
        codebook: Float[Tensor, "codewords uses"],
        popularity: Float[Tensor, " codewords"],
        *,
        batch_slots: int,
        num_active: float | None = None,
        noise_var: Float[Tensor, " slots"] | None = None,
        snr_reference: SnrReference = "slot",
        watch: Watch | None = None,
    ) -> NetOutput:
        """Decode slots of one round, whole batches of them.

        Args:
            received: The slots; the last batch may be shorter only if it is the only one.
            codebook: Unit-norm codewords, one a row.
            popularity: The base station's distribution over codewords.
            batch_slots: Consecutive slots that share what EM learns.
            num_active: Number of active devices, if known; EM then leaves it.
            noise_var: Noise variance of every slot, if known; EM then leaves it.
            snr_reference: For estimates of the noise, where the network starts from such.
            watch: Called with state and belief after each layer.
        """
        y, popularity = received, check_received(received, popularity, codebook).to(received)
        size = 1 if self.settings.em == "slot" else min(batch_slots, max(len(y), 1))
        belief = self._start(y, codebook, popularity, size, num_active, noise_var, snr_reference)
        s = State(y.new_zeros(len(y), len(codebook)), y.new_ones(len(y), len(codebook)), y, torch.ones_like(y))
        largest = max(MIN_COUNTS, int(2 * START_DEVICES if num_active is None else 2 * num_active))
        # the authors' code caches Cᵀ and C² without gradient
        cached = codebook.detach() if self.settings.form == "authors" else codebook
        layer = _authors_layer if self.settings.form == "authors" else _paper_layer
        learn = _authors_em if self.settings.form == "authors" else _paper_em
        for k, cnn in zip(self.scalars(y), self.cnn, strict=True):
            s, post, activity = layer(s, y, codebook, cached, belief, k, largest, size, cnn)
            belief = learn(belief, post, activity, k, size, hold_total=num_active is not None)
            if noise_var is None:
                belief = replace(belief, noise_var=_noise_step(s, y, belief.noise_var, k.noise_gate))
            if watch is not None:
                watch(s, belief)
        return NetOutput(s.x_hat, belief.total[:, 0], belief.noise_var[:, 0])

    def _start(
        self,
        y: Tensor,
        codebook: Tensor,
        popularity: Tensor,
        size: int,
        num_active: float | None,
        noise_var: Tensor | None,
        snr_reference: SnrReference,
    ) -> Belief:
        """Return what EM starts from; what is given stays."""
        if self.settings.start == "estimates" and len(y):
            pilot = PilotEstimator(codebook.detach(), snr_reference=snr_reference)
            shared, noise = pilot.estimate(y.detach(), popularity, num_active, noise_var)
            total = shared.num_active
            if shared.rate.any():  # a silent round tells nothing of the popularity
                popularity = shared.rate / shared.rate.sum().clamp(min=TINY)
        else:
            total = START_DEVICES if num_active is None else num_active
            noise = y.new_full((len(y),), START_NOISE) if noise_var is None else noise_per_slot(noise_var, y)
        popularity = (popularity / popularity.sum()).clamp(min=TINY).expand(-(-len(y) // size), -1)
        rate = (total * popularity).clamp(min=TINY)
        return Belief(torch.full_like(rate[:, :1], total), popularity, rate, tied_activity(rate), noise[:, None])


class CountCnn(nn.Module):
    """The CNN along the codewords whose output is the estimate: three convolutions, each followed by ReLU, no biases.

    The paper says nothing of biases and of the last activation; both are the authors'.
    """

    def __init__(self, settings: AmpDaNetSettings, *, rng: torch.Generator):
        super().__init__()
        channels = {"weight_in": (NUM_FEATURES, settings.filters)}
        channels |= {"weight_mid": (settings.filters, settings.filters), "weight_out": (settings.filters, 1)}
        for name, (inputs, outputs) in channels.items():
            drawn = torch.rand(outputs, inputs, settings.kernel, generator=rng, device=rng.device)
            self.register_parameter(name, nn.Parameter((2 * drawn - 1) / math.sqrt(inputs * settings.kernel)))

    def forward(self, features: Sequence[Float[Tensor, "#slots codewords"]]) -> Float[Tensor, "slots codewords"]:
        """Return the estimate of every count from six maps, each with a row for every slot or one row for all."""
        stacked = torch.stack(torch.broadcast_tensors(*features), dim=-1)
        weights = (getattr(self, name).to(stacked) for name in ("weight_in", "weight_mid", "weight_out"))
        weights = [weight[:, :, None].contiguous(memory_format=torch.channels_last) for weight in weights]
        return torch.cat([_convolve(block, weights) for block in stacked.split(BLOCK)])


def _convolve(features: Float[Tensor, "slots codewords channels"], weights: Sequence[Tensor]) -> PerCodeword:
    """Convolve along the codewords; channels are innermost in memory, where convolutions are fastest."""
    x = features.permute(0, 2, 1)[:, :, None]
    for weight in weights:
        x = F.conv2d(x, weight, padding=(0, weight.shape[3] // 2)).relu_()
    return x[:, 0, 0]


def tied_activity(rate: Float[Tensor, "batches codewords"]) -> Float[Tensor, "batches codewords"]:
    """Return α = 1 − e^(−λ), the probability that a Poisson count is above zero."""
    return (1 - torch.exp(-rate)).clamp(MIN_ACTIVITY, 1 - MIN_ACTIVITY)


def output_block(
    s: State, y: PerUse, codebook: Tensor, cached: Tensor, d: PerUse, k: Scalars
) -> tuple[Float[Tensor, "slots uses"], Float[Tensor, "slots uses"]]:
    r"""Return the next measurement-domain mean and variance (Sec. III-E, output block).

    $$\tilde z = C\hat x - \gamma\, r \odot (C^{\odot 2}\nu \oslash d), \quad z \leftarrow \eta z + (1-\eta)\tilde z$$
    """
    v_new = s.nu @ cached.square()
    z_new = s.x_hat @ codebook - k.gain * ((y - s.z) / d) * v_new
    z = k.damping * s.z + (1 - k.damping) * z_new
    return z.clamp(-MAX_STATE, MAX_STATE), k.damping * s.v + (1 - k.damping) * v_new


def input_block(
    x_hat: PerCodeword, residual: PerUse, d: PerUse, cached: Tensor, k: Scalars
) -> tuple[Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]]:
    r"""Return R and V such that each count is seen as R = x + N(0, V) (Sec. III-E, input block, first half).

    $$V = 1 \oslash (C^{\odot 2\top}\kappa), \quad R = \hat x + V \odot C^\top(\kappa \odot r), \quad
    \kappa = \beta \oslash d$$
    """
    kappa = k.precision * d.reciprocal().clamp(min=TINY)
    psi = (kappa @ cached.square().mT).clamp(min=TINY)
    return x_hat + (kappa * residual) @ cached.mT / psi, psi.reciprocal()


def _paper_layer(
    s: State,
    y: Tensor,
    codebook: Tensor,
    cached: Tensor,
    belief: Belief,
    k: Scalars,
    largest: int,
    size: int,
    cnn: nn.Module,
) -> tuple[State, Moments, Tensor]:
    """Run a layer as the text has it: the input block sees the residual and the variance that entered the layer."""
    d = (belief.noise_var + s.v).clamp(min=TINY)
    z, v = output_block(s, y, codebook, cached, d, k)
    R, V = input_block(s.x_hat, y - s.z, d, cached, k)
    odds = log_odds_spike(belief.rate, belief.activity)
    post = count_moments(R, V, _each(belief.rate.log(), size), _each(odds, size), k.temperature, largest=largest)
    activity = _mean(post.activity, size)
    features = (
        R,
        V.sqrt(),
        post.mean,
        post.var.sqrt(),
        _each(belief.activity, size),
        _each(standardised(belief.rate.log()), size),
    )
    return _blend(s, z, v, post, cnn(features), k), post, activity


def _authors_layer(
    s: State,
    y: Tensor,
    codebook: Tensor,
    cached: Tensor,
    belief: Belief,
    k: Scalars,
    largest: int,
    size: int,
    cnn: nn.Module,
) -> tuple[State, Moments, Tensor]:
    """Run a layer as the authors' code does: new residual with the old variance, zero weighs 1 − α alone, plain rates."""
    d = (belief.noise_var + s.v).clamp(min=TINY)
    z, v = output_block(s, y, codebook, cached, d, k)
    R, V = input_block(s.x_hat, y - z, d, cached, k)
    odds = torch.logit(belief.activity) - belief.rate
    post = count_moments(R, V, _each(belief.rate.log(), size), _each(odds, size), k.temperature, largest=largest)
    found = _mean(post.activity.clamp(MIN_POSTERIOR, 1 - MIN_POSTERIOR), size)
    activity = (1 - k.activity_gate) * tied_activity(belief.rate) + k.activity_gate * found
    features = R, V.sqrt(), post.mean, post.var.sqrt(), _each(activity, size), _each(belief.rate, size)
    return _blend(s, z, v, post, cnn(features), k), post, activity


def _blend(s: State, z: Tensor, v: Tensor, post: Moments, estimate: Tensor, k: Scalars) -> State:
    r"""Return the next state: $\hat x = (1-\zeta)\,m + \zeta\,\tilde x$ and $\nu$ the posterior variance."""
    x_hat = (1 - k.cnn_gate) * post.mean + k.cnn_gate * estimate
    return State(x_hat.clamp(max=MAX_STATE), post.var, z, v)


def standardised(log_rate: Float[Tensor, "batches codewords"]) -> Float[Tensor, "batches codewords"]:
    """Return log λ with mean zero and deviation one over the codewords: popularity without the number of devices."""
    centred = log_rate - log_rate.mean(1, keepdim=True)
    # the root of a sum of squares has no slope at zero, where all rates are equal
    return centred / (centred.square().mean(1, keepdim=True).clamp(min=FLAT**2).sqrt() + FLAT)


def _paper_em(belief: Belief, post: Moments, activity: Tensor, k: Scalars, size: int, *, hold_total: bool) -> Belief:
    r"""Move rates and activities towards what the posterior says (Sec. III-E, EM updates).

    $$\log\lambda \mathrel{+}= \rho_\lambda(\log\hat\lambda - \log\lambda), \quad \rho_\lambda = \tfrac{c}{1+c}, \quad
    c = \mathrm{mean}_j\, \bar m_j^2 / \bar v_j$$

    The text asks for a step between zero and one and gives c alone; c/(1+c) is our reading.
    """
    mean, var = _mean(post.mean, size).clamp(min=TINY), _mean(post.var, size)
    c = (mean.square() / var).mean(1, keepdim=True)
    log_rate = belief.rate.log()
    rate = torch.exp(log_rate + c / (1 + c) * (mean.log() - log_rate)).clamp(min=TINY)
    if hold_total:
        rate = rate * (belief.total / rate.sum(1, keepdim=True))
    total = rate.sum(1, keepdim=True)
    activity = (1 - k.activity_gate) * tied_activity(rate) + k.activity_gate * activity
    activity = activity.clamp(MIN_ACTIVITY, 1 - MIN_ACTIVITY)
    return replace(belief, total=total, popularity=rate / total, rate=rate, activity=activity)


def _authors_em(belief: Belief, post: Moments, activity: Tensor, k: Scalars, size: int, *, hold_total: bool) -> Belief:
    """Move K and π apart and linearly, by learned steps; α was mixed in the layer, with the rates before this step."""
    assert k.total_step is not None  # this form has both
    assert k.popularity_step is not None
    mean = _mean(post.mean, size)
    found = mean.sum(1, keepdim=True)
    total = belief.total
    if not hold_total:
        total = (total + k.total_step * (found - total)).clamp(0, mean.shape[1])
    popularity = (1 - k.popularity_step) * belief.popularity + k.popularity_step * mean / found.clamp(min=TINY)
    popularity = (popularity / popularity.sum(1, keepdim=True)).clamp(min=TINY)
    return replace(
        belief, total=total, popularity=popularity, rate=(total * popularity).clamp(min=TINY), activity=activity
    )


def _noise_step(s: State, y: PerUse, noise_var: Float[Tensor, "slots 1"], gate: Tensor) -> Float[Tensor, "slots 1"]:
    r"""Merge every slot's noise variance with its moment match on the residual, in the log domain (Sec. III-E, EM).

    The match is the posterior expectation of the noise energy where the signal is $\mathcal N(z, v)$, averaged over the uses.
    """
    energy = (y - s.z).square() / (1 + s.v / (noise_var + TINY)).square() + noise_var * s.v / (s.v + noise_var + TINY)
    found = energy.mean(1, keepdim=True).clamp(min=TINY)
    return torch.exp((1 - gate) * noise_var.clamp(min=TINY).log() + gate * found.log())


def _each(rows: Float[Tensor, "batches codewords"], size: int) -> Float[Tensor, "#slots codewords"]:
    """Return the row of every slot's batch; one row if there is one batch."""
    return rows if len(rows) == 1 else rows.repeat_interleave(size, dim=0)


def _mean(values: PerCodeword, size: int) -> Float[Tensor, "batches codewords"]:
    """Return the mean over the slots of every batch."""
    return values.unflatten(0, (-1, size)).mean(1)


class AmpDaNetDecoder(BaseDecoder):
    """A network with its codebook, as a decoder.

    Args:
        net: The network.
        codebook: Unit-norm codewords, one a row: those the network was trained with.
        snr_reference: For estimates of the noise, where the network starts from such.
    """

    def __init__(
        self, net: AmpDaNet, codebook: Float[Tensor, "codewords uses"], *, snr_reference: SnrReference = "slot"
    ):
        self.net, self.codebook, self.snr_reference = net, check_codebook(codebook), snr_reference

    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot; side information is not used, as in the paper."""
        heard = hear(self.codebook, seen)
        exact = heard.exact()
        if exact is not None:
            return exact
        if len(heard.received) == 0 or heard.num_active == 0:
            counts = heard.received.new_zeros(len(heard.received), len(heard.codebook))
            return heard.conclude(counts, noise_per_slot(0.0, heard.received), heard.num_active)
        parts = []
        for first in range(0, len(heard.received), CHUNK):
            rows = slice(first, first + CHUNK)
            noise = None if heard.noise_var is None else heard.noise_var[rows]
            known = {"num_active": heard.num_active, "noise_var": noise, "snr_reference": self.snr_reference}
            parts.append(self.net(heard.received[rows], heard.codebook, heard.popularity, batch_slots=CHUNK, **known))
        mean, noise = (torch.cat([getattr(part, name) for part in parts]) for name in ("mean", "noise_var"))
        slots = [len(part.mean) * float(part.total.double().mean()) for part in parts]
        found = sum(slots) / len(mean) if heard.num_active is None else heard.num_active
        decoded = heard.conclude(mean, noise, found)
        if self.net.settings.form == "authors" and decoded.num_active:
            return replace(
                decoded, counts=authors_counts(decoded.mean, heard.received, heard.codebook, decoded.num_active)
            )
        return decoded

    @torch.no_grad()
    def trace(self, received: Float[Tensor, "slots uses"], popularity: Float[Tensor, " codewords"]) -> list[NetState]:
        """Return what the network thinks after each layer, chunk by chunk as in decoding."""
        heard = hear(self.codebook, Observation(received, popularity))
        found: list[list[NetState]] = []
        for chunk in heard.received.split(CHUNK):
            seen: list[NetState] = []

            def watch(s: State, b: Belief, seen: list[NetState] = seen) -> None:
                seen.append(
                    NetState(
                        s.x_hat, s.nu, s.z, s.v, b.noise_var[:, 0], b.total[:, 0], b.popularity, b.rate, b.activity
                    )
                )

            self.net(
                chunk,
                heard.codebook,
                heard.popularity,
                batch_slots=CHUNK,
                snr_reference=self.snr_reference,
                watch=watch,
            )
            found.append(seen)
        return [NetState.join(layer) for layer in zip(*found, strict=True)]
