r"""Analog transmission refined by lattices: uncoded sums first, then what is left of them modulo a lattice, ever finer.

    base station: own update, what it heard before ──► factors of fibres, plan (announced)
    devices:      messages ──► most energetic first ──► · gain = x ──► stage 0: x
                                                                  ├──► stage 1: b₁x beside the nearest point
                                                                  └──► stage 2: b₂x beside the nearest point
    base station: pilots ──► K̂ and noise;  stage 0 ──► sums ──► − b₁ · sums ──► nearest point ──► better sums ──► … ──► mean

Gains follow the variance of every parameter that row and column factors of its tensor predict (`fibres.py`), as those of
`analog` do that of layers: $g_i^2 \propto \hat v_i^{-1/2}$. If a round has fewer uses than parameters, those of largest
predicted variance are sent, and error feedback keeps the others. The base station plans numbers, energy and cell of every
stage for the noise of the last rounds (`plan.py`). Where a single device is not heard well by itself, in fading, and in the
first round there is no modulo stage: then this is `analog` with better gains.

The mean has two readouts, which are not mixed. `unbiased`: sums as they were heard, for training. `soft`: their posterior
means under a prior that is fitted to the round (`readout.py`), which have the least error in a single round. For that readout
parameters that noise hides anyway are sent more quietly still (`fibres.loudness`): the base station announces a level for it.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.decoders.trellis import CELL, padded, remainders
from aircomp.encode.carrier import Air, Carrier, make_rotation, put
from aircomp.schemes.analog import LEAST_DEVICES
from aircomp.schemes.base import Broadcast, MeanScheme, Memory, Private, SchemeContext, Sent, in_phase, remembered
from aircomp.schemes.outputs import Mean
from aircomp.schemes.piloted import carrier_of, hear_devices, plan_round
from aircomp.schemes.refined.fibres import AT_FIRST, OWN_ALONE, fibre_means, learn_trust, loudness, spread, water_level
from aircomp.schemes.refined.plan import LEAST_MARGIN, Expected, Plan, analog_alone, choose_plan, next_noises
from aircomp.schemes.refined.readout import fit_prior, posterior
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import PilotedSettings, RefinedSettings

log = logging.getLogger(__name__)

ENERGIES, TRUST, GATHERED, NOISES = "energies", "trust", "gathered", "noises"
"""What the link remembers: energies of parameters, the trust in their features, the energy of a sum over that of a device's
number, and the noise variances of the last rounds."""
ROUNDS = 8
"""Rounds whose noise is remembered."""
KEPT = 0.5
"""Share of the remembered energies that a round leaves."""


@dataclass(frozen=True)
class RefinedRound:
    """What both sides derive from the broadcast."""

    order: Int[Tensor, " sent"]
    """The parameters that are sent, by falling predicted variance."""
    gains: Float[Tensor, " sent"]
    energies: Float[Tensor, " sent"]
    """Of the numbers that these gains make, as they are predicted."""
    plan: Plan
    carrier: Carrier


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round."""

    own: Float[Tensor, " params"]
    features: Float[Tensor, "factors features"]
    trust: Float[Tensor, " features"]
    memory: Memory
    """As it was before the round."""


@scheme(
    "refined-analog",
    sends="its update uncoded, and what is left of it modulo a lattice",
    needs="in phase",
    source="this package; modulo stages: Kochman and Zamir 2009",
    ours=True,
)
class RefinedAnalog(MeanScheme):
    """Uncoded messages with gains of fibres, and modulo stages behind them.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = RefinedSettings
    side_information = ("the mean energies of devices' messages and of every stage, which set their scales",)

    def __init__(self, settings: PilotedSettings, context: SchemeContext | None = None):
        self.settings, self.context = settings, context or SchemeContext()
        self.rotation = make_rotation(settings.codeword_length, self.context.seed, self.context.device)

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce the factors of fibres and the plan."""
        size = base_update.numel()
        air, shapes = plan_round(size, self.settings, self.context), self.context.tensor_shapes(size)
        own = fibre_means(base_update.double().square(), shapes)
        energies = _energies_of(memory, size)
        before = torch.zeros_like(own) if energies is None else fibre_means(energies.double(), shapes)
        features = torch.cat([own, before], dim=1)
        trust = memory.get(TRUST, torch.tensor(AT_FIRST)) if energies is not None else torch.tensor(OWN_ALONE)
        factors = (features @ trust.double()).float()
        level = self._level(factors, size, memory, air)
        kept = Kept(base_update, features, trust.double(), memory)
        values = {"factors": factors, "level": level} | _told(self._plan(base_update, factors, level, memory, air))
        return Broadcast(size, air.num_uses, values), kept

    def _level(self, factors: Float[Tensor, " factors"], size: int, memory: Memory, air: Air) -> Float[Tensor, ""]:
        """Return the level for the soft readout by the noise of the last rounds; zero where nothing is known."""
        noises, gathered = memory.get(NOISES), remembered(memory, GATHERED)
        if self.context.readout != "soft" or noises is None or not gathered or not len(air.rows):
            return torch.tensor(0.0)
        sizes = (0.5 * spread(factors.double()[:, None], self.context.tensor_shapes(size))[:, 0]).exp()
        signal = gathered * len(air.rows) / (float(noises.double().mean()) * len(sizes))
        return torch.tensor(water_level(sizes, signal), dtype=torch.float32)

    def _plan(
        self,
        base_update: Float[Tensor, " params"],
        factors: Float[Tensor, " factors"],
        level: Float[Tensor, ""],
        memory: Memory,
        air: Air,
    ) -> Plan:
        """Return the plan of a round; without modulo stages where nothing is known of the noise, and in fading."""
        size = base_update.numel()
        noises, gathered = memory.get(NOISES), remembered(memory, GATHERED)
        if noises is None or not gathered or self.context.block_uses:
            return analog_alone(size, air.room)
        order, gains, _ = self._loudness(factors, level, size)
        own = base_update.double()[order] * gains
        expected = Expected(next_noises(noises.double()), len(air.rows), gathered)
        return choose_plan(own, gains.pow(-2), expected, air.room)

    def _loudness(
        self, factors: Float[Tensor, " factors"], level: Float[Tensor, ""], size: int
    ) -> tuple[Int[Tensor, " params"], Float[Tensor, " params"], Float[Tensor, " params"]]:
        """Return all parameters by falling variance, in that order their gains, and the energies that these give."""
        log_variances = spread(factors.double()[:, None], self.context.tensor_shapes(size))[:, 0]
        order = log_variances.argsort(descending=True, stable=True)
        sizes = (0.5 * log_variances[order]).exp()
        energies = loudness(sizes, float(level))
        return order, energies.sqrt() / sizes, energies

    def _round(self, broadcast: Broadcast) -> RefinedRound:
        """Return what both sides derive from the broadcast."""
        size, values = broadcast.num_params, broadcast.values
        air = plan_round(size, self.settings, self.context)
        plan = Plan(
            tuple(values["numbers"].tolist()), tuple(values["shares"].tolist()), tuple(values["cells"].tolist())
        )
        factors = values["factors"].to(self.rotation.device)
        order, gains, energies = self._loudness(factors, values["level"], size)
        sent = plan.numbers[0]
        return RefinedRound(order[:sent], gains[:sent], energies[:sent], plan, carrier_of(self, air, plan.used))

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Scale the parameters, take the remainders of every stage, and give each stage its share of the energy."""
        of_round = self._round(broadcast)
        carrier, plan, air = of_round.carrier, of_round.plan, of_round.carrier.air
        values = messages[:, of_round.order]
        told = csi.as_reported(values)
        energy = sum(float((own.double() * of_round.gains).square().sum()) for own in told)
        unit = (told.numel() / energy) ** 0.5 if energy > 0 else 0.0
        sent = torch.empty(len(values), plan.used, dtype=torch.float32, device=values.device)
        for own, numbers in zip(values, sent, strict=True):  # one after the other, which takes less memory
            numbers.copy_(torch.cat(_stages(unit * own.double() * of_round.gains, plan)))
        stages = sent.split([plan.numbers[0], *map(padded, plan.numbers[1:])], dim=1)
        slots = max(len(told) * len(air.rows), 1)
        amplitudes = []
        for stage, share in zip(stages, plan.shares, strict=True):
            spent = sum(float(own.double().square().sum()) for own in csi.as_reported(stage)) / slots
            amplitudes.append(math.sqrt(share / spent) if spent > 0 else 0.0)
            stage.mul_(amplitudes[-1])
        speaking = csi.speaking(air.slots, air.uses)
        if speaking is not None:  # a number is understood where it arrives in every stage
            spoken = carrier.of_slots(speaking[:, air.rows])
            values = values * _everywhere(spoken, plan).to(values)
        return Sent(
            carrier.send(carrier.slots_of(sent).to(messages)),
            put(values, of_round.order, broadcast.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scales": torch.tensor([unit, *amplitudes], dtype=torch.float64)},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Kept, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Hear the analog sums, unwrap those of remainders, undo the gains, and divide by the number of devices."""
        of_round = self._round(broadcast)
        carrier, plan, air, heard = of_round.carrier, of_round.plan, of_round.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        numbers = carrier.numbers_of(carrier.hear(heard)).double()
        unit, *amplitudes = broadcast.agreed["scales"].tolist()
        if unit == 0 or amplitudes[0] == 0:
            nothing = torch.zeros_like(private.own)
            return Mean(mean=nothing, soft=nothing, num_active_hat=told.num_active), private.memory
        sent, shapes = plan.numbers[0], self.context.tensor_shapes(broadcast.num_params)
        loud = of_round.gains * unit
        own = private.own.double()[of_round.order] * loud
        tensors = _tensor_of(shapes).to(numbers.device)
        sums = numbers[:sent] / amplitudes[0]
        noise = torch.full_like(sums, told.noise_var / amplitudes[0] ** 2)
        gathered = float((sums.square() - noise).mean())
        prior = fit_prior(sums, noise, own, of_round.energies, tensors[of_round.order], len(shapes))
        soft, doubt = posterior(sums, noise, prior)
        start, listened = sent, 0
        for number, cell, amplitude in zip(plan.numbers[1:], plan.cells, amplitudes[1:], strict=True):
            used = padded(number)
            stage, start = numbers[start : start + used], start + used
            left = told.noise_var / amplitude**2 if amplitude > 0 else math.inf
            in_cell = cell**2 * float(doubt[:number].mean()) + left
            if in_cell * LEAST_MARGIN > CELL:
                log.info("more noise than planned: %d of %d modulo stages are heard", listened, len(plan.cells))
                break
            listened += 1
            known = _filled(cell * soft[:number])
            again = soft[:number] + remainders(stage / amplitude - known)[:number] / cell
            new = left / cell**2
            weight = noise[:number] / (noise[:number] + new)
            sums[:number] += weight * (again - sums[:number])
            noise[:number] *= 1 - weight
            soft, doubt = posterior(sums, noise, prior)
        devices = carrier.of_slots(told.in_slots[air.rows].clamp(min=LEAST_DEVICES))[:sent].double()
        scale = 1 / (loud * devices)
        memory = self._learnt(of_round, sums * scale, noise * scale.square(), private)
        noises = private.memory.get(NOISES, torch.empty(0)).double()
        memory[NOISES] = torch.cat([torch.tensor([told.noise_var], dtype=torch.float64), noises])[:ROUNDS]
        memory[GATHERED] = torch.tensor(max(gathered, 0.0), dtype=torch.float64)
        unsent = prior.slopes[tensors] * private.own.double() / max(told.num_active, LEAST_DEVICES)
        mean = self._mean(of_round, sums * scale, soft * scale, unsent, devices, private.own)
        return replace(mean, num_active_hat=told.num_active, diagnostics={"stages": float(listened)}), memory

    def _mean(
        self,
        of_round: RefinedRound,
        heard: Float[Tensor, " sent"],
        soft: Float[Tensor, " sent"],
        unsent: Float[Tensor, " params"],
        devices: Float[Tensor, " sent"],
        own: Float[Tensor, " params"],
    ) -> Mean:
        """Return both readouts; what was not sent is expected to be what the own update tells."""
        size, order = len(own), of_round.order
        unbiased, expected = put(heard, order, size), unsent.clone()
        expected[order] = soft
        if self.context.include_base_station:
            unbiased[order] = (unbiased[order] * devices + own[order]) / (devices + 1)
            expected[order] = (expected[order] * devices + own[order]) / (devices + 1)
        return Mean(mean=unbiased.to(own), soft=expected.to(own))

    def _learnt(self, of_round: RefinedRound, heard: Tensor, noise: Tensor, private: Kept) -> dict[str, Tensor]:
        """Return the energies and the trust after a round; the length of the update does not matter to them."""
        order, shapes, before = (
            of_round.order,
            self.context.tensor_shapes(len(private.own)),
            _energies_of(private.memory, len(private.own)),
        )
        energies = heard.square() - noise
        predicted = (spread(private.features, shapes) @ private.trust).exp() if before is None else before.double()
        total, usual = float(energies.sum()), float(predicted[order].sum())
        kept = {name: private.memory[name] for name in (ENERGIES, TRUST) if name in private.memory}
        if not (total > 0 and usual > 0 and math.isfinite(total)):
            return kept
        found = predicted / usual
        found[order] = KEPT * found[order] * (before is not None) + (1 - KEPT * (before is not None)) * energies / total
        trust = torch.tensor(AT_FIRST)
        if before is not None:
            trust = learn_trust(private.trust, spread(private.features, shapes)[order], energies, noise)
        return {ENERGIES: (found * len(order)).float(), TRUST: trust.double()}


def _energies_of(memory: Memory, size: int) -> Float[Tensor, " params"] | None:
    """Return what was remembered of each parameter's energy; None: nothing of a model of this size."""
    found = memory.get(ENERGIES)
    return found if found is not None and found.shape == (size,) else None


def _stages(numbers: Float[Tensor, " sent"], plan: Plan) -> list[Float[Tensor, " stage"]]:
    """Return what a device sends in every stage, as loud as it comes."""
    modulo = zip(plan.numbers[1:], plan.cells, strict=True)
    return [numbers, *(remainders(_filled(cell * numbers[:number])) for number, cell in modulo)]


def _told(plan: Plan) -> dict[str, Tensor]:
    """Return a plan as it is announced."""
    return {
        "numbers": torch.tensor(plan.numbers),
        "shares": torch.tensor(plan.shares, dtype=torch.float32),
        "cells": torch.tensor(plan.cells, dtype=torch.float32),
    }


def _filled(numbers: Float[Tensor, "*batch numbers"]) -> Float[Tensor, "*batch filled"]:
    """Return numbers with zeros behind them that fill the last sequences."""
    return torch.nn.functional.pad(numbers, (0, padded(numbers.shape[-1]) - numbers.shape[-1]))


def _everywhere(spoken: Bool[Tensor, "devices numbers"], plan: Plan) -> Bool[Tensor, "devices sent"]:
    """Return which parameters arrive in every stage that carries them."""
    found, start = spoken[:, : plan.numbers[0]].clone(), plan.numbers[0]
    for number in plan.numbers[1:]:
        found[:, :number] &= spoken[:, start : start + number]
        start += padded(number)
    return found


def _tensor_of(shapes: Sequence[Sequence[int]]) -> Int[Tensor, " params"]:
    """Return the tensor that every parameter belongs to."""
    sizes = torch.tensor([math.prod(shape) for shape in shapes])
    return torch.arange(len(sizes)).repeat_interleave(sizes)
