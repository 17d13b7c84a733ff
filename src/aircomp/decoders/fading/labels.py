r"""Counting with known channels: which codeword did each device send?

With channels $h_k$ over the antennas, device $k$'s label in a slot is drawn given the labels of the others,

$$P(j) \propto \pi_j \exp\left[(2\,\mathrm{Re}(c_j^H Y_{-k} h_k^*) - \|h_k\|^2)/\sigma^2 T\right],$$

where $Y_{-k}$ is what the others' signals leave. The temperature $T$ falls to one: at high SNR single labels are otherwise
stuck. Slots are independent of each other, so each keeps the best labels that any pass found. All slots of a block move at
once; the loop is over devices.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from aircomp.common.packing import unpack

SWEEPS, NOISY_SWEEPS = 4, 32
"""At temperature one, whose label probabilities are averaged; in much noise labels are uncertain, and more of them tell."""
PASSES = 2
"""Annealing runs; every slot keeps the better one."""
EASY_NOISE = 0.3
"""Noise at which labels move freely: anneals begin with as much."""
MIN_NOISE = 1e-4
"""Of a complex use: less changes no label, and divisions stay finite."""
MIN_SHARE = 1e-7
"""Popularity of a codeword, at least: what the base station never chose may still be sent."""


@dataclass(frozen=True)
class Labels:
    """The labels of a block, and what they leave unexplained."""

    chosen: Int[Tensor, "slots devices"]
    residual: Complex[Tensor, "slots antennas uses"]
    cost: Float[Tensor, " slots"]
    """Negative log probability, up to a constant."""

    def better_of(self, other: "Labels") -> "Labels":
        """Return the better labels of every slot."""
        new = other.cost < self.cost
        return Labels(
            torch.where(new[:, None], other.chosen, self.chosen),
            torch.where(new[:, None, None], other.residual, self.residual),
            torch.minimum(other.cost, self.cost),
        )


@dataclass(frozen=True)
class Sampler:
    """Draws labels for known channels.

    Args:
        received: What the antennas heard in a block.
        codebook: Unit-norm codewords.
        log_share: Logarithm of each codeword's popularity.
        noise_var: Per complex use and antenna.
        rng: Where choices come from.
    """

    received: Complex[Tensor, "slots antennas uses"]
    codebook: Complex[Tensor, "codewords uses"]
    log_share: Float[Tensor, " codewords"]
    noise_var: float
    rng: torch.Generator

    @property
    def noisy(self) -> bool:
        """Whether the labels of a slot are uncertain even with true channels."""
        return self.noise_var >= EASY_NOISE / 2

    def settle(self, chosen: Int[Tensor, "slots devices"], channels: Complex[Tensor, "devices antennas"]) -> Labels:
        """Say what labels leave unexplained."""
        return self._priced(chosen, self.received - torch.einsum("ka,sku->sau", channels, self.codebook[chosen]))

    def _priced(self, chosen: Tensor, residual: Tensor) -> Labels:
        cost = torch.view_as_real(residual).square().sum((1, 2, 3)) / self.noise_var - self.log_share[chosen].sum(1)
        return Labels(chosen, residual, cost)

    def sweep(
        self,
        labels: Labels,
        channels: Complex[Tensor, "devices antennas"],
        temperature: float,
        counts: Float[Tensor, "slots codewords"] | None = None,
    ) -> Labels:
        """Draw every device's label once; add the probabilities that it is drawn with to `counts`, where asked for."""
        C, uses = self.codebook, 2 * self.codebook.shape[1]
        scaled = unpack(C, uses).T * (2 / (self.noise_var * temperature))  # the real part of a product, in real numbers
        residual, chosen = labels.residual.clone(), labels.chosen.clone()
        for k, (h, power) in enumerate(zip(channels, channels.abs().square().sum(1).tolist(), strict=True)):
            own = C[chosen[:, k]]
            alone = torch.einsum("sau,a->su", residual, h.conj()).add_(own, alpha=power)
            log_weight = torch.addmm(self.log_share, unpack(alone, uses), scaled)  # up to what all labels share
            if counts is not None:
                counts += torch.softmax(log_weight, 1)
            noise = torch.rand(log_weight.shape, generator=self.rng).to(log_weight).clamp_(1e-12, 1 - 1e-7)
            drawn = log_weight.sub_(noise.log_().neg_().log_()).argmax(1)  # a sample, by Gumbel's trick
            residual += h[None, :, None] * own.sub_(C[drawn])[:, None, :]
            chosen[:, k] = drawn
        return self._priced(chosen, residual)

    def anneal(self, labels: Labels, channels: Complex[Tensor, "devices antennas"], heat: float = 1.0) -> Labels:
        """Cool down once.

        In little noise every slot keeps the better labels, because single ones are stuck at times. In much noise the best
        labels fit the noise, and channels that are learnt from them drift; samples do not.
        """
        moving = labels
        for temperature in _cooling(heat * max(1.0, EASY_NOISE / self.noise_var)):
            moving = self.sweep(moving, channels, temperature)
        return moving if self.noisy else labels.better_of(moving)

    def start(self, channels: Complex[Tensor, "devices antennas"]) -> Labels:
        """Draw labels by popularity alone."""
        slots, devices = len(self.received), len(channels)
        shares = self.log_share.exp().expand(slots, -1).cpu()  # where the generator is
        chosen = torch.multinomial(shares, devices, replacement=True, generator=self.rng)
        return self.settle(chosen.to(self.log_share.device), channels)

    def expected_counts(
        self, labels: Labels, channels: Complex[Tensor, "devices antennas"]
    ) -> Float[Tensor, "slots codewords"]:
        """Average the label probabilities of some sweeps at temperature one."""
        total = self.log_share.new_zeros(len(labels.chosen), len(self.codebook))
        sweeps = NOISY_SWEEPS if self.noisy else SWEEPS
        for _ in range(sweeps):
            labels = self.sweep(labels, channels, 1.0, total)
        return total / sweeps

    def find(self, channels: Complex[Tensor, "devices antennas"]) -> Labels:
        """Return the better labels of several anneals."""
        labels = self.start(channels)
        for _ in range(PASSES):
            labels = labels.better_of(self.anneal(self.start(channels), channels, heat=8.0))
        return labels


def _cooling(hottest: float) -> Iterable[float]:
    """Return temperatures that halve from the hottest to one."""
    steps = max(0, math.ceil(math.log2(hottest)))
    return [2.0**step for step in range(steps, -1, -1)]


def log_shares(popularity: Float[Tensor, " codewords"]) -> Float[Tensor, " codewords"]:
    """Return the logarithm of a popularity without zeros."""
    return (popularity / popularity.sum()).clamp(min=MIN_SHARE).log()


def least_squares(
    received: Complex[Tensor, "slots antennas uses"],
    codebook: Complex[Tensor, "codewords uses"],
    chosen: Int[Tensor, "slots devices"],
    known: Complex[Tensor, "devices antennas"] | None = None,
    weight: Float[Tensor, " devices"] | None = None,
) -> Complex[Tensor, "devices antennas"]:
    """Return the channels that explain a block best for known labels.

    Args:
        received: What the antennas heard.
        codebook: One codeword a row.
        chosen: The labels.
        known: What is known of the channels beforehand.
        weight: How many slots that is worth for each device; None: nothing is known.
    """
    sent = codebook[chosen]
    gram = torch.einsum("sku,smu->km", sent.conj(), sent)
    heard = torch.einsum("sku,sau->ka", sent.conj(), received)
    if known is not None and weight is not None:
        gram, heard = gram + torch.diag(weight).to(gram), heard + weight[:, None].to(heard) * known
    # two devices with the same labels throughout leave the system singular: a thousandth of a slot decides then
    return torch.linalg.solve(gram + 1e-3 * torch.eye(len(gram), dtype=gram.dtype, device=gram.device), heard)
