r"""Whole numbers that add up in the air: what `sumcomp`, `bit-slicing` and `complement-coded` share.

    base station: scale of every layer, mean and amplitude of every part (announced)
    devices:      messages [K_a, W] ──► whole numbers ──► parts of each ──► one sent number a part
    base station: pilots ──► K̂;  noisy sums of parts ──► estimated sums ──► mean

A part of a whole number is a whole number again, and the number is the sum of its parts times their weights. So sums of parts
tell the sum of numbers. Updates are quantised uniformly, with a dither that everybody knows (`quantize/levels.py`). The mean
of a part is subtracted before sending. Sums are estimated by the mean of their posterior, by its maximum (`map`), as the
nearest ones (`ml`), or by the best linear estimate (`lmmse`).
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common import rng as rngs
from aircomp.decoders.estimate.heard_pilots import PilotEstimate
from aircomp.encode.carrier import Air, Carrier, amplitude_of_one, chosen_parameters, make_rotation, put, take
from aircomp.errors import ConfigError
from aircomp.quantize.levels import Levels, layer_scales
from aircomp.schemes.base import (
    MEAN_ENERGY,
    Broadcast,
    MeanScheme,
    Memory,
    Private,
    SchemeContext,
    Sent,
    in_phase,
    new_seed,
)
from aircomp.schemes.outputs import Mean
from aircomp.schemes.piloted import carrier_of, hear_devices, plan_round, remember
from aircomp.schemes.settings import WholeNumbersSettings


@dataclass(frozen=True)
class WholeNumbersRound:
    """What both sides derive from the broadcast."""

    chosen: Int[Tensor, " chosen"] | None
    levels: Levels
    means: Float[Tensor, " parts"]
    """The mean of every part, which nobody sends."""
    amplitudes: Float[Tensor, " parts"]
    """How loud every part is sent, before the common scale; zero: not at all."""
    carrier: Carrier


@dataclass(frozen=True)
class WholeNumbersPrior:
    """What the base station keeps: its own update, and how often a device has each value, in the form of the scheme."""

    update: Float[Tensor, " params"]
    prior: Float[Tensor, "..."]


class WholeNumbers(MeanScheme):
    """Whole numbers, sent part by part.

    Args:
        settings: Its options.
        context: What the link is made for.
        count: How many numbers there are.
    """

    side_information = MEAN_ENERGY
    offset: float = 0.0
    """What a number is more than the sum of its parts times their weights."""

    def __init__(self, settings: WholeNumbersSettings, context: SchemeContext | None, count: int):
        if count > 2**24:
            raise ConfigError(
                f"uplink = {self.name!r} has {count} numbers, more values than float32 tells apart; expected at most 2^24"
            )
        self.settings, self.context, self.count = settings, context or SchemeContext(), count
        self.rotation = make_rotation(settings.codeword_length, self.context.seed, self.context.device)

    @property
    @abstractmethod
    def weights(self) -> Float[Tensor, " parts"]:
        """What parts are multiplied by to give the number."""

    @abstractmethod
    def parts(self, whole: Int[Tensor, "*batch params"]) -> Int[Tensor, "parts *batch params"]:
        """Return the parts of numbers."""

    def means(self, own: Int[Tensor, " params"]) -> Float[Tensor, " parts"]:
        """Return the mean of every part, from the base station's own numbers."""
        return self.parts(own).double().mean(dim=1) if len(own) else torch.zeros(len(self.weights), dtype=torch.float64)

    @abstractmethod
    def prior(self, own: Int[Tensor, " params"]) -> Float[Tensor, "..."]:
        """Return how often a device has each value, from the base station's own numbers."""

    @abstractmethod
    def amplitudes(
        self, prior: Float[Tensor, "..."], memory: Memory, air: Air, num_params: int
    ) -> Float[Tensor, " parts"]:
        """Return how loud every part is to be sent."""

    @abstractmethod
    def sums(
        self,
        heard: Float[Tensor, "params parts"],
        noise_vars: Float[Tensor, " parts"],
        prior: Float[Tensor, "..."],
        num_devices: int,
    ) -> Float[Tensor, "params parts"]:
        """Return the estimated sums of parts over so many devices."""

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce the scale of every layer, and mean and amplitude of every part."""
        size, seed, number = base_update.numel(), new_seed(rng), len(self.weights)
        air = plan_round(size, self.settings, self.context)
        if air.room < number:
            raise ConfigError(
                f"{self.name} has {number} numbers for a parameter, but the round room for {air.room}; use a larger model, "
                "a longer uplink.codeword_length or fewer numbers"
            )
        chosen = chosen_parameters(seed, size, air.room // number)
        own, layers = take(base_update, chosen), take(self._layers(size), chosen)
        scales = layer_scales(own, layers) * self.settings.clip
        whole = self._levels(scales, layers, seed).quantize(own)
        prior = self.prior(whole)
        means = self.means(whole)
        loud = self.amplitudes(prior, memory, air, len(own))
        values = {"scales": scales, "means": means.float(), "amplitudes": loud.float(), "seed": seed}
        return Broadcast(size, air.num_uses, values), WholeNumbersPrior(base_update, prior)

    def _layers(self, num_params: int) -> Int[Tensor, " params"]:
        return self.context.parameter_layers(num_params, self.settings.fragment_length).to(self.rotation.device)

    def _levels(self, scales: Float[Tensor, " layers"], layers: Int[Tensor, " chosen"], seed: Tensor) -> Levels:
        dither = torch.rand(len(layers), generator=rngs.generator(int(seed), "dither")).to(scales)
        return Levels(self.count, scales, layers, dither)

    def _round(self, broadcast: Broadcast) -> WholeNumbersRound:
        """Return what both sides derive from the broadcast."""
        size, values, number = broadcast.num_params, broadcast.values, len(self.weights)
        air = plan_round(size, self.settings, self.context)
        chosen = chosen_parameters(values["seed"], size, air.room // number)
        layers = take(self._layers(size), chosen)
        levels = self._levels(values["scales"], layers, values["seed"])
        carrier = carrier_of(self, air, number * len(layers), number)
        return WholeNumbersRound(chosen, levels, values["means"].double(), values["amplitudes"].double(), carrier)

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send the parts of every parameter, less the mean that was announced."""
        of_round = self._round(broadcast)
        carrier, air, levels = of_round.carrier, of_round.carrier.air, of_round.levels
        parts = self.parts(levels.quantize(take(messages, of_round.chosen))).double()
        means, loud = (part[:, None, None].to(parts) for part in (of_round.means, of_round.amplitudes))
        slots = carrier.slots_of(
            ((parts - means) * loud).movedim(0, 2).flatten(1).to(messages)
        )  # side by side: in one block
        scale = amplitude_of_one(csi.as_reported(slots))
        speaking = csi.speaking(air.slots, air.uses)
        sent = torch.where(loud > 0, parts, means)  # of a part that is not sent, everybody knows the mean
        whole = self.offset + torch.tensordot(self.weights.to(sent), sent, dims=1)
        arrived = carrier.arrived(levels.values(whole), speaking)
        return Sent(
            carrier.send(slots * scale),
            put(arrived, of_round.chosen, broadcast.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale, dtype=torch.float64)},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Estimate the sum of every part, and put the parts together."""
        of_round = self._round(broadcast)
        carrier, air, heard = of_round.carrier, of_round.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        numbers = carrier.numbers_of(carrier.hear(heard)).unflatten(0, (-1, len(self.weights)))
        devices = carrier.of_slots(told.in_slots[air.rows].round())[:: len(self.weights)]
        parts = self._mean_parts(numbers, float(broadcast.agreed["scale"]), told, devices, of_round, private.prior)
        whole = self.offset + parts.double() @ self.weights.to(parts.device)
        mean = of_round.levels.values(whole) * (devices > 0)
        if self.context.include_base_station:
            mean = (mean * devices + take(private.update, of_round.chosen).to(mean)) / (devices + 1)
        found = Mean(mean=put(mean, of_round.chosen, broadcast.num_params), num_active_hat=told.num_active)
        return found, remember(told)

    def _mean_parts(
        self,
        heard: Float[Tensor, "params parts"],
        scale: float,
        told: PilotEstimate,
        devices: Float[Tensor, " params"],
        of_round: WholeNumbersRound,
        prior: Float[Tensor, "..."],
    ) -> Float[Tensor, "params parts"]:
        """Return the mean of every part over the devices of its block."""
        means = of_round.means.to(heard)
        found = means.expand_as(heard).clone()
        loud = of_round.amplitudes.to(heard) * scale
        # what is not sent is heard as its mean, behind noise without end
        noise = torch.where(loud > 0, told.noise_var / loud.square().clamp(min=1e-30), torch.inf)
        for number in devices.unique().tolist():
            if number > 0 and scale > 0:
                some = devices == number
                sums = heard[some] / loud.clamp(min=1e-30) * (loud > 0) + number * means
                told_sums = self.sums(sums, noise, prior, int(number)) / number
                found[some] = torch.where(loud > 0, told_sums, means)
        return found
