r"""AMP-DA-Net, the paper's network: AMP unrolled into layers with learned scalars and a CNN in each (Sec. III-E).

    y ──► output_block ──► z, v ──► input_block ──► R, V ──► table of counts ──► m, var ──► CNN, gate ──► x_hat, nu
              γ, η                      β                      τ   ▲                          ζ
                                                      λ, α, σ² ────┘ ◄── expectation maximisation (EM) over a batch of slots

It is built in two forms, named in its settings. `paper` is the text. `authors` is what the authors' published code computes,
which differs from the text in the residual of the input block, the weight of zero, the CNN's features, EM, and the rounding.
`docs/paper/divergences.md` lists every difference with the test that pins it. Our own network is `gamp_net.py` beside it.

Slots of one batch share rates λ and activities α, so a result depends on the batches: 64 slots in training, at most 512
consecutive ones of a round in decoding, as in the authors' code.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common import rng as rngs
from aircomp.common.radio import SnrReference
from aircomp.common.threads import spread
from aircomp.decoders.base import Decoded, Observation, PerCodeword, PerUse, check_codebook, check_received
from aircomp.decoders.heard import hear, noise_per_slot
from aircomp.decoders.kernels import native
from aircomp.decoders.net.base import Moments, Net, NetDecoder, NetState
from aircomp.decoders.net.count_table import count_moments, log_odds_spike
from aircomp.decoders.settings import AmpDaNetSettings

NUM_FEATURES = 6
BLOCK = 64  # slots that pass through all convolutions before the next ones do: their maps stay in cache
CHUNK = 512  # slots decoded as one batch, the authors'
SHARE = 128  # … of which a thread takes so many at a time
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


class AmpDaNet(Net):
    """The paper's network.

    Args:
        settings: The network's form and shape.
        rng: Where the CNN's first weights come from; the same ones each time if not given.
    """

    def __init__(self, settings: AmpDaNetSettings, *, rng: torch.Generator | None = None):
        super().__init__()
        self.settings: AmpDaNetSettings = settings
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
        largest = max(MIN_COUNTS, int(2 * START_DEVICES if num_active is None else 2 * num_active))
        # slots of one batch may be shared among threads, where no graph is recorded
        step = SHARE if size >= len(y) and native.ready(y, codebook) else max(len(y), 1)
        signals, noises = y.split(step), belief.noise_var.split(step)
        states = [_first_state(part, len(codebook)) for part in signals]
        # the authors' code caches Cᵀ and C² without gradient
        authors, book = self.settings.form == "authors", Book.of(codebook, cached=self.settings.form == "authors")
        prior_of, learn = (_authors_prior, _authors_em) if authors else (_paper_prior, _paper_em)
        for k, cnn in zip(self.scalars(y), self.cnn, strict=True):
            prior = prior_of(belief, size)
            sense = partial(_sense, book=book, prior=prior, k=k, largest=largest, authors=authors)
            seen = spread(sense, states, signals, noises)
            post = Moments(*(_mean([getattr(part.post, name) for part in seen], size) for name in Moments._fields))
            rows, activity = _features(belief, post, k, size, authors=authors)
            guess = partial(_estimate, rows=rows, k=k, cnn=cast("CountCnn", cnn), hold_noise=noise_var is not None)
            states, noises = zip(*spread(guess, seen, noises), strict=True)
            belief = learn(belief, post, activity, k, hold_total=num_active is not None)
            if watch is not None:
                joined = State(*(torch.cat([getattr(s, field.name) for s in states]) for field in fields(State)))
                watch(joined, replace(belief, noise_var=torch.cat(noises)))
        return NetOutput(torch.cat([s.x_hat for s in states]), belief.total[:, 0], torch.cat(noises)[:, 0])

    def decoder(
        self,
        codebook: Float[Tensor, "codewords uses"],
        *,
        snr_reference: SnrReference = "slot",
        trained_for: tuple[int, int] | None = None,
    ) -> "AmpDaNetDecoder":
        """Return the decoder of a codebook, which warns of no number of devices."""
        return AmpDaNetDecoder(self, codebook, snr_reference=snr_reference)

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
            from aircomp.decoders.estimate.pilot import PilotEstimator  # the paper starts from constants

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

    weight_in: nn.Parameter
    weight_mid: nn.Parameter
    weight_out: nn.Parameter

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
        weights = [weight.to(stacked)[:, :, None] for weight in self.parameters()]
        weights = [weight.contiguous(memory_format=torch.channels_last) for weight in weights]
        return torch.cat([_convolve(block, weights) for block in stacked.split(BLOCK)])

    def by_channel(self, like: Tensor) -> list[Tensor]:
        """Return the weights of the convolutions as [filters, kernel, channels]."""
        return [weight.to(like).permute(0, 2, 1) for weight in self.parameters()]


def _convolve(features: Float[Tensor, "slots codewords channels"], weights: Sequence[Tensor]) -> PerCodeword:
    """Convolve along the codewords; channels are innermost in memory, where convolutions are fastest."""
    x = features.permute(0, 2, 1)[:, :, None]
    for weight in weights:
        x = F.conv2d(x, weight, padding=(0, weight.shape[3] // 2)).relu_()
    return x[:, 0, 0]


def tied_activity(rate: Float[Tensor, "batches codewords"]) -> Float[Tensor, "batches codewords"]:
    """Return α = 1 − e^(−λ), the probability that a Poisson count is above zero."""
    return (1 - torch.exp(-rate)).clamp(MIN_ACTIVITY, 1 - MIN_ACTIVITY)


@dataclass(frozen=True)
class Book:
    """The codebook in the forms that layers need."""

    rows: Float[Tensor, "codewords uses"]
    matched: Float[Tensor, "codewords uses"]
    """Of the matched filter."""
    squares: Float[Tensor, "codewords uses"]

    @classmethod
    def of(cls, codebook: Float[Tensor, "codewords uses"], *, cached: bool) -> "Book":
        """Prepare a codebook; with `cached`, gradients reach it through `rows` alone."""
        matched = codebook.detach() if cached else codebook
        return cls(codebook, matched, matched.square())


@dataclass(frozen=True)
class Prior:
    """What a layer expects of every count, one row for all slots or one for each."""

    log_rate: Float[Tensor, "#slots codewords"]
    log_odds: Float[Tensor, "#slots codewords"]
    """Of the counts above zero against zero, but for their Poisson weights."""


@dataclass(frozen=True)
class Seen:
    """What the first half of a layer finds: the next state of message passing, the pseudo-channel and its posterior."""

    z: PerUse
    v: PerUse
    R: PerCodeword
    V: PerCodeword
    post: Moments
    energy: Float[Tensor, "slots 1"]
    """What the noise of every slot is now thought to be."""


def _first_state(y: PerUse, num_codewords: int) -> State:
    return State(y.new_zeros(len(y), num_codewords), y.new_ones(len(y), num_codewords), y, torch.ones_like(y))


def _sense(
    s: State, y: PerUse, noise_var: Tensor, *, book: Book, prior: Prior, k: Scalars, largest: int, authors: bool
) -> Seen:
    """Run the output block and the input block up to the posterior.

    As the text has it, the input block sees the residual that entered the layer; in the authors' code the new one. Both
    see the variance that entered it.
    """
    if native.ready(y, s.x_hat, noise_var, book.rows):
        z, v, R, V, energy = native.pass_messages(
            book.rows,
            y,
            noise_var,
            (s.x_hat, s.nu),
            (s.z, s.v),
            gain=float(k.gain),
            damping=float(k.damping),
            precision=float(k.precision),
            limit=MAX_STATE,
            least=TINY,
            late=True,
            late_residual=not authors,
        )
    else:
        d = (noise_var + s.v).clamp(min=TINY)
        z, v = output_block(s, y, book, d, k)
        R, V = input_block(s.x_hat, y - (z if authors else s.z), d, book, k)
        energy = noise_energy(z, v, y, noise_var)
    post = count_moments(R, V, prior.log_rate, prior.log_odds, k.temperature, largest=largest)
    if authors:
        post = post._replace(activity=post.activity.clamp(MIN_POSTERIOR, 1 - MIN_POSTERIOR))
    return Seen(z, v, R, V, post, energy)


def output_block(
    s: State, y: PerUse, book: Book, d: PerUse, k: Scalars
) -> tuple[Float[Tensor, "slots uses"], Float[Tensor, "slots uses"]]:
    r"""Return the next measurement-domain mean and variance (Sec. III-E, output block).

    $$\tilde z = C\hat x - \gamma\, r \odot (C^{\odot 2}\nu \oslash d), \quad z \leftarrow \eta z + (1-\eta)\tilde z$$
    """
    v_new = s.nu @ book.squares
    z_new = s.x_hat @ book.rows - k.gain * ((y - s.z) / d) * v_new
    z = k.damping * s.z + (1 - k.damping) * z_new
    return z.clamp(-MAX_STATE, MAX_STATE), k.damping * s.v + (1 - k.damping) * v_new


def input_block(
    x_hat: PerCodeword, residual: PerUse, d: PerUse, book: Book, k: Scalars
) -> tuple[Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]]:
    r"""Return R and V such that each count is seen as R = x + N(0, V) (Sec. III-E, input block, first half).

    $$V = 1 \oslash (C^{\odot 2\top}\kappa), \quad R = \hat x + V \odot C^\top(\kappa \odot r), \quad
    \kappa = \beta \oslash d$$
    """
    kappa = k.precision * d.reciprocal().clamp(min=TINY)
    psi = (kappa @ book.squares.mT).clamp(min=TINY)
    return x_hat + (kappa * residual) @ book.matched.mT / psi, psi.reciprocal()


def _paper_prior(belief: Belief, size: int) -> Prior:
    return Prior(_each(belief.rate.log(), size), _each(log_odds_spike(belief.rate, belief.activity), size))


def _authors_prior(belief: Belief, size: int) -> Prior:
    """Return the same as the authors' code has it: zero weighs 1 − α alone."""
    return Prior(_each(belief.rate.log(), size), _each(torch.logit(belief.activity) - belief.rate, size))


def _features(
    belief: Belief, post: Moments, k: Scalars, size: int, *, authors: bool
) -> tuple[
    tuple[Float[Tensor, "#slots codewords"], Float[Tensor, "#slots codewords"]], Float[Tensor, "batches codewords"]
]:
    """Return the last two features of the CNN, and the activity for EM.

    The text has the activity from before the layer and standardised rates; the authors' code the activity of now, mixed
    with the posterior's, and plain rates.
    """
    if not authors:
        return (_each(belief.activity, size), _each(standardised(belief.rate.log()), size)), post.activity
    activity = (1 - k.activity_gate) * tied_activity(belief.rate) + k.activity_gate * post.activity
    return (_each(activity, size), _each(belief.rate, size)), activity


def _estimate(
    seen: Seen,
    noise_var: Float[Tensor, "slots 1"],
    *,
    rows: tuple[Tensor, Tensor],
    k: Scalars,
    cnn: CountCnn,
    hold_noise: bool,
) -> tuple[State, Float[Tensor, "slots 1"]]:
    r"""Return the next state, $\hat x = (1-\zeta)\,m + \zeta\,\tilde x$ and $\nu$ the posterior variance, and the noise."""
    post = seen.post
    if native.serves(seen.R, seen.V, *rows):
        x_hat = native.estimate(
            seen.R,
            seen.V,
            (post.mean, post.var),
            rows,
            gate=float(k.cnn_gate),
            limit=MAX_STATE,
            weights=cnn.by_channel(seen.R),
        )
    else:
        estimate = cnn((seen.R, seen.V.sqrt(), post.mean, post.var.sqrt(), *rows))
        x_hat = ((1 - k.cnn_gate) * post.mean + k.cnn_gate * estimate).clamp(max=MAX_STATE)
    s = State(x_hat, post.var, seen.z, seen.v)
    return s, noise_var if hold_noise else _noise_step(noise_var, seen.energy, k.noise_gate)


def standardised(log_rate: Float[Tensor, "batches codewords"]) -> Float[Tensor, "batches codewords"]:
    """Return log λ with mean zero and deviation one over the codewords: popularity without the number of devices."""
    centred = log_rate - log_rate.mean(1, keepdim=True)
    # the root of a sum of squares has no slope at zero, where all rates are equal
    return centred / (centred.square().mean(1, keepdim=True).clamp(min=FLAT**2).sqrt() + FLAT)


def _paper_em(belief: Belief, post: Moments, activity: Tensor, k: Scalars, *, hold_total: bool) -> Belief:
    r"""Move rates and activities towards what the posterior says (Sec. III-E, EM updates).

    $$\log\lambda \mathrel{+}= \rho_\lambda(\log\hat\lambda - \log\lambda), \quad \rho_\lambda = \tfrac{c}{1+c}, \quad
    c = \mathrm{mean}_j\, \bar m_j^2 / \bar v_j$$

    The text asks for a step between zero and one and gives c alone; c/(1+c) is our reading.
    """
    mean, var = post.mean.clamp(min=TINY), post.var
    c = (mean.square() / var).mean(1, keepdim=True)
    log_rate = belief.rate.log()
    rate = torch.exp(log_rate + c / (1 + c) * (mean.log() - log_rate)).clamp(min=TINY)
    if hold_total:
        rate = rate * (belief.total / rate.sum(1, keepdim=True))
    total = rate.sum(1, keepdim=True)
    activity = (1 - k.activity_gate) * tied_activity(rate) + k.activity_gate * activity
    activity = activity.clamp(MIN_ACTIVITY, 1 - MIN_ACTIVITY)
    return replace(belief, total=total, popularity=rate / total, rate=rate, activity=activity)


def _authors_em(belief: Belief, post: Moments, activity: Tensor, k: Scalars, *, hold_total: bool) -> Belief:
    """Move K and π apart and linearly, by learned steps; α was mixed in the layer, with the rates before this step."""
    assert k.total_step is not None  # this form has both
    assert k.popularity_step is not None
    mean = post.mean
    found = mean.sum(1, keepdim=True)
    total = belief.total
    if not hold_total:
        total = (total + k.total_step * (found - total)).clamp(0, mean.shape[1])
    popularity = (1 - k.popularity_step) * belief.popularity + k.popularity_step * mean / found.clamp(min=TINY)
    popularity = (popularity / popularity.sum(1, keepdim=True)).clamp(min=TINY)
    return replace(
        belief, total=total, popularity=popularity, rate=(total * popularity).clamp(min=TINY), activity=activity
    )


def noise_energy(z: PerUse, v: PerUse, y: PerUse, noise_var: Float[Tensor, "slots 1"]) -> Float[Tensor, "slots 1"]:
    r"""Return the expected energy of the noise where the signal is $\mathcal N(z, v)$, averaged over the uses."""
    energy = (y - z).square() / (1 + v / (noise_var + TINY)).square() + noise_var * v / (v + noise_var + TINY)
    return energy.mean(1, keepdim=True)


def _noise_step(
    noise_var: Float[Tensor, "slots 1"], energy: Float[Tensor, "slots 1"], gate: Tensor
) -> Float[Tensor, "slots 1"]:
    """Merge every slot's noise variance with its moment match on the residual, in the log domain (Sec. III-E, EM)."""
    return torch.exp((1 - gate) * noise_var.clamp(min=TINY).log() + gate * energy.clamp(min=TINY).log())


def _each(rows: Float[Tensor, "batches codewords"], size: int) -> Float[Tensor, "#slots codewords"]:
    """Return the row of every slot's batch; one row if there is one batch."""
    return rows if len(rows) == 1 else rows.repeat_interleave(size, dim=0)


def _mean(parts: Sequence[Tensor], size: int) -> Float[Tensor, "batches codewords"]:
    """Return the mean over the slots of every batch; several parts are of one batch."""
    if len(parts) == 1:
        return parts[0].unflatten(0, (-1, size)).mean(1)
    return torch.stack([part.sum(0) for part in parts]).sum(0, keepdim=True) / size


class AmpDaNetDecoder(NetDecoder):
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
        self.passes = net.settings.num_layers
        self.convolutions = sum(w.numel() for w in net.cnn.parameters() if w.ndim > 1) * len(codebook)

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
            from aircomp.decoders.net.refit import authors_counts

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
