r"""Counting without any knowledge of gains: multisource AMP on several antennas.

Nobody knows phases, so $m$ devices that choose one codeword are heard as a random vector over the antennas of mean power
$m$, and `aircomp.decoders.fading.multisource` weighs every $m$ by its energy. Beforehand $m$ is Poisson, or an urn's where
devices agree. Where devices miss their power, $m$ is replaced by quantiles of a Gamma law of mean $m$. The method is TUMA's.
"""

from collections.abc import Callable

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from aircomp.common.radio import GainModel
from aircomp.decoders.base import MAX_DEVICES, Decoded
from aircomp.decoders.fading.count_weights import CountTable, largest_count
from aircomp.decoders.fading.multisource import Found, Schedule, multisource_amp
from aircomp.decoders.fading.receiver import (
    CHUNK,
    MIN_RATE,
    Reception,
    check_complex_codebook,
    check_reception,
    conclude_blocks,
    expected_counts,
    soft_counts,
)
from aircomp.decoders.settings import BlindSettings

PILOT_SLOTS = 256
"""Slots whose decoding settles the number of devices and the noise of a round."""
PILOT_PASSES = 3


Learned = Callable[[int, GainModel], Schedule]
"""Makes a schedule for a number of antennas and for how gains are spread."""


class Blind:
    """Multisource AMP; the number of devices and the noise are estimated from the round.

    Args:
        codebook: Unit-norm complex codewords, one a row.
        settings: Its options.
        learned: Makes the schedule that slots are decoded with; None: the plain one, of the options.
    """

    side_information: tuple[str, ...] = ()

    def __init__(
        self,
        codebook: Complex[Tensor, "codewords uses"],
        settings: BlindSettings | None = None,
        learned: Learned | None = None,
    ):
        self.codebook, self.settings = check_complex_codebook(codebook), settings or BlindSettings()
        self.learned, self.plain = learned, Schedule.plain(self.settings.iterations, self.settings.damping)

    @torch.no_grad()
    def receive(self, seen: Reception) -> list[Decoded]:
        """Estimate the counts of every block."""
        seen = check_reception(seen, self.codebook)
        popularity, Y = seen.popularity, seen.received.transpose(0, 1)
        num_active, noise_var = self.estimate(Y, popularity, seen)
        if num_active < 0.5 or len(Y) == 0:
            empty = popularity.new_zeros(Y.shape[0], len(popularity))
            return conclude_blocks(empty, noise_var, [0.0] * len(seen.all_blocks), seen.all_blocks)

        schedule = self.plain if self.learned is None else self.learned(Y.shape[1], seen.gain_model)

        def run(some: Tensor, rate: Tensor, iterations: int) -> Tensor:
            return self.run(some, rate, seen.gain_model.power_var, schedule.first(iterations)).mean[:, 0]

        rate = expected_counts(num_active, popularity)
        mean = soft_counts(run, Y, rate, len(schedule.trust), seen.slot_layers, seen.bs_indices)
        return conclude_blocks(mean, noise_var, [num_active] * len(seen.all_blocks), seen.all_blocks)

    def run(
        self,
        Y: Complex[Tensor, "slots antennas uses"],
        rate: Float[Tensor, "#slots codewords"],
        power_var: float,
        schedule: Schedule | None = None,
    ) -> Found:
        """Decode slots for known rates, all at once: one access point, one zone; with the plain schedule if none is given."""
        table = CountTable.of(largest_count(float(rate.max())), power_var)
        prior = table.log_prior(rate, self.settings.agreement)
        return multisource_amp(
            Y[:, None],
            self.codebook.to(Y),
            prior[:, None],
            table.counts,
            table.power[None, :, None],
            self.plain if schedule is None else schedule,
            rate.sum(1),
        )

    def estimate(
        self, Y: Complex[Tensor, "slots antennas uses"], popularity: Float[Tensor, " codewords"], seen: Reception
    ) -> tuple[float, float]:
        r"""Estimate the number of devices and the noise.

        The power of a slot is $K + L\sigma^2$ on average. Popular codewords are heard more often, which tells both apart for
        a start; then some slots are decoded, and what is left over is the noise.
        """
        slots, _, uses = Y.shape
        if slots == 0:
            return seen.num_active or 0.0, seen.noise_var or 0.0
        energy = float(Y.abs().double().square().sum((1, 2)).mean()) / Y.shape[1]
        noise = self._first_noise(Y, popularity, energy) if seen.noise_var is None else seen.noise_var
        some = Y[:: max(1, slots // PILOT_SLOTS)]
        num_active = seen.num_active
        for _ in range(PILOT_PASSES if seen.noise_var is None and energy > 0 else 0):
            known = num_active if num_active is not None else energy - uses * noise
            if known < MIN_RATE:
                break
            rate = expected_counts(min(known, MAX_DEVICES), popularity)
            found = self.run(some, rate, seen.gain_model.power_var)
            noise = min(float(found.noise_var.double().mean()), energy / uses)
        if num_active is None:
            num_active = min(max(energy - uses * noise, 0.0), MAX_DEVICES)
        return num_active, noise

    def _first_noise(self, Y: Tensor, popularity: Tensor, energy: float) -> float:
        """Fit the mean energy behind every codeword's filter, K·(what others leak into it) + noise."""
        C = self.codebook.to(Y)
        leak = (C @ C.mH).abs().square().double() @ popularity.double()
        heard = torch.zeros_like(leak)
        for piece in Y.split(CHUNK):
            heard += (piece @ C.mH).abs().double().square().mean(1).sum(0)
        heard /= len(Y)
        weight = popularity.double()  # what is popular is told apart best
        x, y = leak - weight @ leak, heard - weight @ heard
        slope = float((weight * x) @ y / ((weight * x) @ x).clamp(min=1e-12))
        # where all codewords are as popular, or few slots were heard, it tells nothing: half of the power is noise then
        noise = max(energy - slope, 0.05 * energy) if slope > 0 else 0.5 * energy
        return noise / Y.shape[2]
