r"""Samples of the exact posterior: what any decoder can know of a slot, for a given prior.

    received ──► gamp ──► labels of chain 0 ───────────────┐
    prior ──────────────► labels of chain 1, …, annealed ──┴─► sweep, sweep, … ──► how often x_j ≥ m ──► mean, median

The state of a slot is the codeword (label) of each of its K devices. A sweep draws every label anew, given the others:

$$P(\text{label}_k = j) \propto \pi_j \exp\bigl[(c_j^\top r_{-k} - \tfrac12\lVert c_j\rVert^2)/\sigma^2\bigr],$$

$r_{-k}$ the residual without device k (Gibbs sampling). The Gram matrix $CC^\top$ keeps all $c_j^\top r$ up to date, so
that a draw costs O(n). Every slot has several chains: one starts from the counts that message passing decoded, the
others from draws of the prior, under noise that sinks to its true level. Chains that agree have forgotten their start.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.radio import SnrReference
from aircomp.decoders.amp.prior import reach_for
from aircomp.decoders.amp.steps import MIN_NOISE, PreparedCodebook, iterate
from aircomp.decoders.base import BaseDecoder, Decoded, Observation, check_codebook, check_received
from aircomp.decoders.estimate.pilot import PilotEstimator
from aircomp.decoders.heard import hear, noise_per_slot
from aircomp.decoders.rounding import round_to_sum
from aircomp.decoders.settings import PosteriorSettings
from aircomp.errors import ConfigError

# Random numbers are drawn for so many slots at a time, from a generator of their own, whatever is computed at a time.
BLOCK = 256
CHUNK = 2 * BLOCK  # slots computed at a time: bounds the temporaries, changes nothing else …
MOST_LEVELS = (
    1 << 25
)  # … nor does this: levels of all counts and pairs of devices in all chains of a chunk, 128 MB a copy
# Annealing starts at this noise variance: exchanging one unit-norm codeword for another costs an energy of about one,
# four nats here, so labels still move. Little depends on it: from 0.25, 0.5 or 2, at most 3 of 512 slots got stuck.
HOT = 0.25
# Below this variance float32 no longer knows the exponents to a tenth of a nat, and wrong labels weigh exp(−5000).
LEAST_NOISE = 1e-4
# With more devices a sweep, which goes from device to device, takes too long; what message passing decodes then stands.
MOST_SAMPLED = 500


@dataclass(frozen=True)
class Prior:
    """How devices choose their codewords."""

    log_share: Float[Tensor, "#rows codewords"]
    """Of all slots alike, or of each."""
    concentration: float
    """Of the Dirichlet distribution that the slot's own shares are drawn from; infinite if devices are independent."""

    @classmethod
    def of(cls, rate: Float[Tensor, "*rows codewords"], agreement: float) -> "Prior":
        """Return the prior of rates under which the second device of a slot copies the first with this probability."""
        log_share = torch.atleast_2d(torch.log(rate / rate.sum(-1, keepdim=True)))
        return cls(log_share, (1 - agreement) / agreement if agreement else math.inf)

    def chains(self, slots: slice, number: int) -> "Prior":
        """Return the prior of some slots, once for each chain."""
        if len(self.log_share) == 1:
            return self
        return Prior(self.log_share[slots].repeat(number, 1), self.concentration)

    def log_weight(self, others: Float[Tensor, "rows codewords"] | None) -> Tensor:
        """Return the log-weight of every codeword for one device, given the counts of the others."""
        if others is None:
            return self.log_share
        return torch.log(self.concentration * self.log_share.exp() + others)

    def log_counts(self, labels: Int[Tensor, "rows devices"], earlier: Int[Tensor, "rows devices"]) -> Tensor:
        """Return the log-probability of the counts that the labels make, up to a constant of the prior.

        Labels have the probability that each device chooses in turn; of every x_j labels alike, x_j! orders are one.
        """
        weight = self.log_share.expand(len(labels), -1).gather(1, labels)
        if self.concentration < math.inf:
            weight = torch.log(self.concentration * weight.exp() + earlier)
        return (weight - torch.log1p(earlier.to(weight))).sum(1)


@dataclass
class Chains:
    """The state of all chains of some slots, one a row; a sweep changes it in place."""

    labels: Int[Tensor, "rows devices"]
    field: Float[Tensor, "rows codewords"]
    """c_jᵀr − ½‖c_j‖², r the residual of all labels."""
    counts: Float[Tensor, "rows codewords"] | None
    """Only where devices agree: independent devices do not ask what the others chose."""

    @classmethod
    def start(cls, labels: Tensor, matched: Tensor, gram: Tensor, prior: Prior) -> "Chains":
        """Return the state of given labels; `matched` is c_jᵀy."""
        field = matched - gram.diagonal() / 2
        for label in labels.T:  # one at a time, not by a product of matrices, whose rounding depends on their size
            field -= gram.index_select(0, label)
        return cls(labels.clone(), field, None if prior.concentration == math.inf else _count(labels, field))

    def sweep(
        self,
        gram: Float[Tensor, "codewords codewords"],
        noise_var: Float[Tensor, "rows 1"],
        prior: Prior,
        uniforms: Float[Tensor, "devices rows"],
    ) -> None:
        """Draw the label of every device anew, one device after the other, each by inverting its distribution."""
        precision, most = noise_var.reciprocal(), len(gram) - 1
        for k, u in enumerate(uniforms):
            label = self.labels[:, k]
            self.field += gram.index_select(0, label)
            self._count_one(label, -1.0)
            weight = torch.softmax(torch.addcmul(prior.log_weight(self.counts), self.field, precision), dim=1)
            reached = weight.cumsum_(dim=1)
            threshold = u[:, None] * reached[:, -1:]
            # rounding can bring the threshold up to the total itself, which lies beyond the last codeword
            label = torch.searchsorted(reached, threshold, right=True).clamp_(max=most).squeeze(1)
            self.field -= gram.index_select(0, label)
            self._count_one(label, 1.0)
            self.labels[:, k] = label

    def _count_one(self, label: Tensor, amount: float) -> None:
        if self.counts is not None:
            self.counts.scatter_add_(1, label[:, None], self.counts.new_full((len(label), 1), amount))


Counts = Int[Tensor, "slots codewords"]
PerSlot = Float[Tensor, " slots"]


@dataclass(frozen=True)
class Samples:
    """What the samples of every slot say."""

    mean: Float[Tensor, "slots codewords"]
    """Posterior mean of the counts."""
    median: Counts
    """Of all counts with the right sum, those of least expected ℓ1 error: the posterior medians, but for that sum."""
    best: Counts
    """The most probable counts that any chain visited."""
    log_posterior: PerSlot
    """Of `best`, up to a constant of the slot."""
    disagreement: PerSlot
    """ℓ1 distance between the first chain's mean and the others', over 2K: 0 if they agree, 1 if they share nothing."""


class Posterior(BaseDecoder):
    """Gibbs sampling of the devices' labels, with the round's rates, number of devices and noise as `gamp` estimates them.

    As a decoder it is slow. As a yardstick it shows what is left to gain, for independent devices that choose with the
    estimated rates.

    Args:
        codebook: Unit-norm codewords, one a row.
        settings: Its options.
        snr_reference: Whether the noise variance is one for the round, or follows the power of each `slot`.
        unit_norm: Whether the codewords must have unit norm (`with_codebook`).
    """

    def __init__(
        self,
        codebook: Float[Tensor, "codewords uses"],
        settings: PosteriorSettings | None = None,
        *,
        snr_reference: SnrReference = "round",
        unit_norm: bool = True,
    ):
        self.codebook = check_codebook(codebook, unit_norm=unit_norm)
        self.settings = settings or PosteriorSettings()
        self.snr_reference: SnrReference = snr_reference
        self.pilot = PilotEstimator(
            codebook, snr_reference=snr_reference, agreement=self.settings.agreement, unit_norm=unit_norm
        )

    def with_codebook(self, codebook: Float[Tensor, "codewords uses"]) -> "Posterior":
        """Return the decoder of another codebook, whose codewords may differ in energy."""
        return Posterior(codebook, self.settings, snr_reference=self.snr_reference, unit_norm=False)

    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot; with side information from the rates of a first pass by message passing."""
        heard = hear(self.codebook, seen)
        exact = heard.exact()
        if exact is not None:
            return exact
        shared, noise = self.pilot.estimate(heard.received, heard.popularity, heard.num_active, heard.noise_var)
        rate = self.pilot.slot_rates(heard.received, noise, shared.rate, seen.slot_layers, seen.bs_indices)
        if shared.num_active > MOST_SAMPLED:
            soft = self.pilot.means(heard.received, noise, rate)
            return heard.conclude(soft, noise, shared.num_active, shared.num_active_error)
        samples = self.sample(heard.received, rate, round(shared.num_active), noise)
        decoded = heard.conclude(samples.mean, noise, shared.num_active, shared.num_active_error)
        return replace(decoded, counts=samples.median)

    @torch.no_grad()
    def sample(
        self,
        received: Float[Tensor, "slots uses"],
        rate: Float[Tensor, "*slots codewords"],
        num_active: int,
        noise_var: Float[Tensor, " slots"],
    ) -> Samples:
        """Sample the posterior of every slot.

        Args:
            received: What the antenna saw, one slot a row.
            rate: How often each codeword is expected, in all slots or in each, up to a factor; not used if nobody is active.
            num_active: Devices in every slot.
            noise_var: Noise variance per channel use of every slot.
        """
        if not 0 <= num_active <= MOST_SAMPLED:
            raise ConfigError(
                f"num_active is {num_active}; expected 0 to {MOST_SAMPLED} devices, whose labels are sampled"
            )
        noise_var = noise_per_slot(noise_var, received).clamp(min=LEAST_NOISE)
        energy = received.square().sum(1) / (2 * noise_var)
        if num_active == 0 or len(received) == 0:
            nothing = received.new_zeros(len(received), len(self.codebook))
            return Samples(nothing, nothing.long(), nothing.long(), -energy, torch.zeros_like(energy))
        rate = torch.atleast_2d(rate).to(received)
        check_received(received, rate.mean(0), self.codebook)
        rate = num_active * rate / rate.sum(1, keepdim=True)
        codebook = self.codebook.to(received)
        warm = self._decoded(received, rate, noise_var, num_active)
        gram, matched, prior = codebook @ codebook.T, received @ codebook.T, Prior.of(rate, self.settings.agreement)
        levels = self.settings.chains * num_active * (len(codebook) + num_active)
        chunk = max(min(CHUNK, MOST_LEVELS // levels), 1)
        chunks = [slice(first, first + chunk) for first in range(0, len(received), chunk)]
        parts = [self._chunk(rows, warm, matched, noise_var, prior, gram) for rows in chunks]
        mean, median, best, log_posterior, disagreement = (torch.cat(part) for part in zip(*parts, strict=True))
        return Samples(mean, median, best, log_posterior - energy, disagreement)

    def _decoded(self, received: Tensor, rate: Tensor, noise_var: Tensor, num_active: int) -> Tensor:
        """Return the labels [slots, devices] of the counts that message passing decodes, a block at a time."""
        book, noise_var = PreparedCodebook.of(self.codebook.to(received)), noise_var.clamp(min=MIN_NOISE)[:, None]
        widest = float(noise_var.max() + (rate @ book.rows_squared).max()) / float(book.rows_squared.sum(1).min())
        iterations, reach = self.pilot.iterations, reach_for(widest, max_count=max(4, num_active))
        blocks = zip(
            received.split(BLOCK), noise_var.split(BLOCK), rate.expand(len(received), -1).split(BLOCK), strict=True
        )
        states = [iterate(y, book, noise, own, iterations=iterations, reach=reach) for y, noise, own in blocks]
        counts = round_to_sum(torch.cat([s.x_hat for s in states]), num_active)
        codewords = torch.arange(counts.shape[1], device=rate.device).expand_as(counts)
        return codewords.flatten().repeat_interleave(counts.flatten()).reshape(len(counts), num_active)

    def _chunk(
        self, slots: slice, warm: Tensor, matched: Tensor, noise_var: Tensor, prior: Prior, gram: Tensor
    ) -> tuple[Tensor, ...]:
        """Sample the slots of a chunk; its rows are all slots of the first chain, then all of the next."""
        warm, matched = warm[slots], matched[slots].repeat(self.settings.chains, 1)
        cold = noise_var[slots, None].repeat(self.settings.chains, 1)
        uniforms, prior = self._uniforms(slots.start, warm), prior.chains(slots, self.settings.chains)
        first = next(uniforms).T.contiguous()
        labels = torch.searchsorted(
            prior.log_share.exp().cumsum(1).expand(len(first), -1).contiguous(), first, right=True
        )
        labels.clamp_(max=len(gram) - 1)  # the shares may sum to a little less than one
        labels[: len(warm)] = warm
        state, tally = Chains.start(labels, matched, gram, prior), _Tally.empty(labels, matched)
        for sweep in range(self.settings.burn_in):
            hot = cold * (cold.clamp(min=HOT) / cold) ** (1 - sweep / self.settings.burn_in)
            hot[: len(warm)] = cold[: len(warm)]
            state.sweep(gram, hot, prior, next(uniforms))
        for _ in range(self.settings.sweeps):
            state.sweep(gram, cold, prior, next(uniforms))
            tally.add(state, matched, gram, cold, prior)
        return tally.conclude(self.settings.chains, self.settings.sweeps, len(gram))

    def _uniforms(self, first: int, like: Int[Tensor, "slots devices"]) -> Iterator[Tensor]:
        """Yield uniform numbers [devices, rows] for ever; those of a slot depend on seed and slot alone."""
        blocks = range(first // BLOCK, math.ceil((first + len(like)) / BLOCK))
        generators = [rngs.generator(self.settings.seed, "posterior", block) for block in blocks]
        shape = (like.shape[1], self.settings.chains, BLOCK)
        while True:
            drawn = torch.cat([torch.rand(shape, generator=g) for g in generators], dim=2)
            yield drawn[:, :, first % BLOCK :][:, :, : len(like)].flatten(1).to(like.device)


@dataclass
class _Tally:
    """What is kept of the samples."""

    at_least: Float[Tensor, "rows levels"]
    """How many samples have x_j ≥ m: all codewords for m = 1, then all for m = 2, to m = K."""
    best: Int[Tensor, "rows devices"]
    highest: Float[Tensor, " rows"]
    """Log-posterior of the best sample."""
    lowest: Float[Tensor, " rows"]

    @classmethod
    def empty(cls, labels: Tensor, matched: Tensor) -> "_Tally":
        levels = labels.shape[1] * matched.shape[1]
        unknown = matched.new_full((len(labels),), math.inf)
        return cls(matched.new_zeros(len(labels), levels), labels.clone(), highest=-unknown, lowest=unknown)

    def add(self, state: Chains, matched: Tensor, gram: Tensor, noise_var: Tensor, prior: Prior) -> None:
        labels = state.labels
        # the m-th device on a codeword is what raises its count to m
        earlier = (labels[:, :, None] == labels[:, None, :]).tril(-1).sum(2)
        self.at_least.scatter_add_(1, earlier * len(gram) + labels, torch.ones_like(labels, dtype=matched.dtype))
        # xᵀCy − ½‖xC‖² = ½ Σ_k (c_kᵀy + c_kᵀr)
        fit = (matched.gather(1, labels) + state.field.gather(1, labels) + gram.diagonal()[labels] / 2).sum(1) / 2
        log_posterior = fit / noise_var[:, 0] + prior.log_counts(labels, earlier)
        self.best = torch.where((log_posterior > self.highest)[:, None], labels, self.best)
        self.highest = torch.maximum(self.highest, log_posterior)
        self.lowest = torch.minimum(self.lowest, log_posterior)

    def conclude(self, chains: int, sweeps: int, num_codewords: int) -> tuple[Tensor, ...]:
        """Return the fields of `Samples` in their order.

        With little noise a chain can be stuck for good, in counts that the others know to be nearly impossible: one all
        of whose samples are less probable than all of another chain's is left out.
        """
        num_active = self.best.shape[1]
        chance = (self.at_least / sweeps).reshape(chains, -1, num_active, num_codewords)
        means = chance.sum(2)
        disagreement = (means[1:] - means[0]).abs().sum(2).mean(0) / (2 * num_active)
        highest, lowest = self.highest.reshape(chains, -1), self.lowest.reshape(chains, -1)
        trusted = (highest >= lowest.amax(0)).to(chance)
        chance = ((trusted / trusted.sum(0))[:, :, None, None] * chance).sum(0)
        # raising x_j to m changes the expected ℓ1 error by 1 − 2P(x_j ≥ m), which grows with m: the K likeliest are best
        likeliest = chance.flatten(1).sort(dim=1, descending=True, stable=True).indices[:, :num_active]
        log_posterior, chain = highest.max(0)
        best = self.best.reshape(chains, -1, num_active)[chain, torch.arange(len(chain), device=chain.device)]
        counts = [_count(labels, means[0]).long() for labels in (likeliest % num_codewords, best)]
        return chance.sum(1), *counts, log_posterior, disagreement


def _count(
    labels: Int[Tensor, "rows devices"], like: Float[Tensor, "rows codewords"]
) -> Float[Tensor, "rows codewords"]:
    return torch.zeros_like(like).scatter_add_(1, labels, torch.ones_like(labels, dtype=like.dtype))
