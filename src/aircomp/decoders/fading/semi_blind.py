r"""Counting by learning the channels: a block's slots share their gains, so the devices can be told apart.

    blind AMP on every slot ─► vectors of codewords that one device sent ─► cluster: a channel for each device
       ─► labels for these channels ─► least squares for the channels ─► … ─► counts

Nobody sends pilots. The clusters of a few antennas are wrong at times: two devices become one. What a wrong channel leaves
unexplained shows in the residual, so the weakest channels are replaced, one after the other, by the strongest of the
residual, and what does not explain more is undone; a device is added or left out in the same way. Where the channels then
explain less than the blind counts are worth, those stand.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from aircomp.common.rng import generator
from aircomp.decoders.base import Decoded
from aircomp.decoders.fading.blind import Blind, Learned
from aircomp.decoders.fading.labels import MIN_NOISE, Labels, Sampler, least_squares, log_shares
from aircomp.decoders.fading.receiver import Reception, check_complex_codebook, check_reception, conclude_blocks
from aircomp.decoders.settings import SemiBlindSettings

SURE = 0.8
"""Probability that one device sent a codeword, from which on its vector is a sample of a channel."""
STARTS, MEANS = 30, 15
"""Of k-means: starts, of which the tightest counts, and steps."""
MOST_DEVICES = 64
"""More devices than that are left to the blind receiver: labels would take minutes."""
SHORTEST = 8
"""Slots of a block, at least: shorter ones are left to the blind receiver."""
MIN_SAMPLES = 2
"""Samples for each channel, at least; blocks with fewer are left to the blind receiver."""
WEAKEST = 4
"""Channels among which the wrong one is looked for."""
MANY_ANTENNAS, TRIES = 8, 3
"""With fewer antennas clusters overlap: several starts are tried, and the most probable counts."""
EXPLAINED, STUCK, TOO_MUCH = 1.01, 1.05, 2.0
"""Residual over noise at which nothing is left to repair, from which on a start was wrong, and at which gains cannot have
stayed as they were."""


@dataclass(frozen=True)
class Fit:
    """Channels of a block and the labels that go with them."""

    channels: Complex[Tensor, "devices antennas"]
    labels: Labels

    @property
    def cost(self) -> float:
        """Negative log probability."""
        return float(self.labels.cost.double().sum())

    @property
    def power(self) -> float:
        """Of the residual, per complex use and antenna."""
        return float(self.labels.residual.abs().double().square().mean())


class SemiBlind:
    """Blind decoding, then channels and labels in turn, block by block.

    Args:
        codebook: Unit-norm complex codewords, one a row.
        settings: Its options.
        learned: Makes the schedule of the first decoding; None: the plain one.
    """

    side_information: tuple[str, ...] = ()

    def __init__(
        self,
        codebook: Complex[Tensor, "codewords uses"],
        settings: SemiBlindSettings | None = None,
        learned: Learned | None = None,
    ):
        self.codebook, self.settings = check_complex_codebook(codebook), settings or SemiBlindSettings()
        self.blind = Blind(self.codebook, self.settings.blind, learned)

    @torch.no_grad()
    def receive(self, seen: Reception) -> list[Decoded]:
        """Estimate the counts of every block; what the blind receiver finds is the start and the way back."""
        seen = check_reception(seen, self.codebook)
        first = self.blind.receive(seen)
        return [
            self._block(seen, decoded, rows, index)
            for index, (decoded, rows) in enumerate(zip(first, seen.all_blocks, strict=True))
        ]

    def _block(self, seen: Reception, first: Decoded, rows: slice, index: int) -> Decoded:
        number, Y = first.num_active, seen.received[:, rows].transpose(0, 1)
        if not 0 < number <= MOST_DEVICES or len(Y) < SHORTEST:
            return first
        noise_var = max(float(first.noise_var[0]), MIN_NOISE)
        rng = generator(0, "semi-blind", index)
        sampler = Sampler(Y, self.codebook, log_shares(seen.popularity), noise_var, rng)
        vectors = self._samples(Y, number, seen.popularity)
        if len(vectors) < MIN_SAMPLES * number:
            return first
        fit = self._best_start(sampler, vectors, number)
        if seen.num_active is None:
            fit = self._with_fewer(sampler, self._with_more(sampler, fit))
        if fit.power > TOO_MUCH * noise_var:
            return first
        mean = sampler.expected_counts(fit.labels, fit.channels)
        given = seen.num_active if seen.num_active is not None else float(len(fit.channels))
        return conclude_blocks(mean, fit.power, [given], (slice(0, len(Y)),))[0]

    def _best_start(self, sampler: Sampler, vectors: Tensor, number: int) -> Fit:
        """Return the most probable of some starts; with many antennas the first that is not stuck is good enough."""
        fits: list[Fit] = []
        for _ in range(TRIES):
            fits.append(self._begun(sampler, vectors, number))
            if vectors.shape[1] >= MANY_ANTENNAS and fits[-1].power < STUCK * sampler.noise_var:
                break
        return min(fits, key=lambda fit: fit.cost)

    def _begun(self, sampler: Sampler, vectors: Tensor, number: int) -> Fit:
        """Begin with clusters, and repair what they leave."""
        channels = cluster(vectors, number, rng=sampler.rng)
        fit = self._fit(sampler, channels, sampler.anneal(sampler.start(channels), channels, heat=8.0))
        return self._repaired(sampler, fit)

    def _samples(self, Y: Tensor, number: int, popularity: Tensor) -> Complex[Tensor, "samples antennas"]:
        """Return the vectors of codewords that one device sent, in all likelihood."""
        rate = (number * popularity).clamp(min=1e-6)[None]
        found = self.blind.run(Y, rate, 0.0)
        return found.vectors[:, 0].transpose(1, 2)[found.once[:, 0] > SURE]

    def _fit(self, sampler: Sampler, channels: Tensor, labels: Labels) -> Fit:
        """Find channels for labels and labels for channels, in turn."""
        for _ in range(self.settings.passes):
            channels = least_squares(sampler.received, sampler.codebook, labels.chosen)
            labels = sampler.anneal(sampler.settle(labels.chosen, channels), channels)
        return Fit(channels, labels)

    def _repaired(self, sampler: Sampler, fit: Fit) -> Fit:
        """Replace weak channels by what the residual holds, as long as that explains more."""
        for attempt in range(self.settings.repairs):
            if fit.power < EXPLAINED * sampler.noise_var:
                break
            weakest = fit.channels.abs().square().sum(1).argsort()
            place = int(weakest[attempt % min(WEAKEST, len(weakest))])
            tried = self._replaced(sampler, fit, place)
            fit = tried if tried.cost < fit.cost else fit
        return fit

    def _replaced(self, sampler: Sampler, fit: Fit, place: int) -> Fit:
        channels = fit.channels.clone()
        own = channels[place][None, :, None] * sampler.codebook[fit.labels.chosen[:, place]][:, None, :]
        channels[place] = strongest(fit.labels.residual + own, sampler.codebook)
        return self._fit(
            sampler, channels, sampler.anneal(sampler.settle(fit.labels.chosen, channels), channels, heat=2.0)
        )

    def _with_more(self, sampler: Sampler, fit: Fit) -> Fit:
        """Add devices as long as that explains more than their labels cost."""
        # the power that the blind receiver counts by differs from the number of devices by √(K/N_r)
        more = 1 + math.ceil(3 * math.sqrt(len(fit.channels) / fit.channels.shape[1]))
        for _ in range(more):
            if fit.power < EXPLAINED * sampler.noise_var:
                break
            channels = torch.cat([fit.channels, strongest(fit.labels.residual, sampler.codebook)[None]])
            chosen = torch.cat([fit.labels.chosen, sampler.start(channels[-1:]).chosen], 1)
            labels = sampler.anneal(sampler.settle(chosen, channels), channels, heat=2.0)
            tried = self._fit(sampler, channels, labels)
            if tried.cost >= fit.cost:
                break
            fit = tried
        return fit

    def _with_fewer(self, sampler: Sampler, fit: Fit) -> Fit:
        """Leave the weakest device out as long as its labels cost more than it explains."""
        while len(fit.channels) > 1:
            weakest = fit.channels.abs().square().sum(1).argsort()[:WEAKEST].tolist()
            tried = min((self._without(sampler, fit, k) for k in weakest), key=lambda fit: fit.cost)
            if tried.cost >= fit.cost:
                break
            fit = tried
        return fit

    def _without(self, sampler: Sampler, fit: Fit, place: int) -> Fit:
        kept = [k for k in range(len(fit.channels)) if k != place]
        channels = fit.channels[kept]
        return self._fit(sampler, channels, sampler.settle(fit.labels.chosen[:, kept], channels))


def strongest(
    residual: Complex[Tensor, "slots antennas uses"], codebook: Complex[Tensor, "codewords uses"]
) -> Complex[Tensor, " antennas"]:
    """Return the channel of the strongest device in a residual: its direction, then the phase that codewords give it."""
    together = torch.einsum("sau,sbu->ab", residual, residual.conj())
    direction = torch.linalg.eigh(together)[1][:, -1]
    matched = torch.einsum("sau,a->su", residual, direction.conj()) @ codebook.mH
    return direction * matched.gather(1, matched.abs().argmax(1, keepdim=True)).mean()


def cluster(
    vectors: Complex[Tensor, "samples antennas"], number: int, *, rng: torch.Generator
) -> Complex[Tensor, "clusters antennas"]:
    """Return the centres of the tightest of many k-means, each begun with far-apart samples."""
    points: Float[Tensor, "samples coordinates"] = torch.view_as_real(vectors).flatten(1)
    all_starts = points.expand(STARTS, -1, -1)
    centres = points[torch.randint(len(points), (STARTS, 1), generator=rng)]
    for _ in range(number - 1):
        away = torch.cdist(centres, all_starts).amin(1).square() + 1e-9  # samples may all be equal
        centres = torch.cat([centres, points[torch.multinomial(away.cpu(), 1, generator=rng)]], 1)
    for _ in range(MEANS):
        member = torch.nn.functional.one_hot(torch.cdist(all_starts, centres).argmin(2), number).to(points)
        size = member.sum(1)[..., None]
        centres = torch.where(size > 0, member.mT @ points / size.clamp(min=1), centres)
    spread = torch.cdist(all_starts, centres).amin(2).square().sum(1)
    return torch.view_as_complex(centres[spread.argmin()].unflatten(1, (-1, 2)).contiguous())
