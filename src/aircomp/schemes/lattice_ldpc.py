r"""Parity checks over lattice points that add up in the air (Xie et al. 2023; compute-and-forward, Nazer and Gastpar 2011).

    base station: scale of every layer, how often each level occurs, the rate (announced)
    devices:      messages [K_a, W] ──► levels 0 … q − 1 ──► one linear code over Z_p ──► points of a line, all at once
    base station: pilots ──► K̂;  noisy sums of points ──► distributions over Z_p ──► belief propagation ──► sums ──► mean

All devices have the same code (`encode/ldpc.py`), so the sum of their codewords modulo $p$ is a codeword. The base station
forms the distribution of every residue (`decoders/lattice_sums.py`) and decodes that one word (`decoders/ldpc.py`). With
$p > K(q - 1)$ the residue of an information symbol is the sum itself. Of words that do not satisfy all checks, the base
station takes the mean of what belief propagation says of each symbol. Words in two coherence blocks, in one of which a device
may be silent, are not decoded.

The abstract of the paper names non-binary LDPC codes and lattice modulation; the rest is derived here. Information symbols
have few levels, so they are sent as points $a - \bar a$ of that many levels. Parity symbols have all $p$ points. The receiver
knows the prior of a sum of levels, which a code for equally likely symbols does not use. There is no dither: with few levels
it would leave more error than rounding does, and levels would be more alike in how often they occur.

The rate follows the noise of the last round. Of the numbers of levels and the graphs that it can decode, the base station
announces those with the least error; if it can decode none, those whose soft values have the least. It takes a word for
decodable if noise leaves `SPARE` symbols less open than there are checks (docs/notebook/2026-11-18-lattice-codes.md).
The first round has two levels and the lowest rate.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Inexact, Int, Real
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import slot_blocks
from aircomp.decoders import ldpc
from aircomp.decoders.digit_sums import sum_prior
from aircomp.decoders.lattice_sums import residues, uncertainty
from aircomp.encode.carrier import Carrier, amplitude_of_one, chosen_parameters, make_rotation, put, take
from aircomp.encode.ldpc import GRAPHS, LENGTH, Code, make_code, prime_above
from aircomp.errors import ConfigError
from aircomp.quantize.levels import SMALLEST, layer_scales, nearest_level
from aircomp.schemes.base import (
    MEAN_ENERGY,
    NOISE_VAR,
    NUM_DEVICES,
    Broadcast,
    MeanScheme,
    Memory,
    Private,
    SchemeContext,
    Sent,
    in_phase,
    new_seed,
    remembered,
)
from aircomp.schemes.outputs import Mean
from aircomp.schemes.piloted import carrier_of, hear_devices, plan_round, remember
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import LARGEST_PRIME, LatticeLdpcSettings

LEVELS, CLIPS, LOUDER = (2, 3, 4, 5, 6, 7, 8), (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0), (0.25, 0.5, 1.0, 2.0)
"""What the base station chooses from: levels, where they end over the root mean square of a layer, and the energy of an
information symbol over that of a parity symbol."""
TRIED = 3
"""Ends of the levels that are tried for each number of them."""
SPARE = 24
"""Checks that a code needs beyond the symbols that noise leaves open; with so many one word in fifty is lost."""
WORDS = 256
"""Words that are decoded at a time."""


@dataclass(frozen=True)
class Plan:
    """What the base station chose for a round."""

    levels: int
    graph: int
    """Place in `GRAPHS`."""
    clip: float
    louder: float


@dataclass(frozen=True)
class LatticeRound:
    """What both sides derive from the broadcast."""

    chosen: Int[Tensor, " chosen"] | None
    limits: Float[Tensor, " chosen"]
    """The outermost levels of every parameter."""
    prior: Float[Tensor, " levels"]
    code: Code
    words: int
    amplitudes: Float[Tensor, " symbols"]
    """Of every symbol of a word, before the common scale."""
    carrier: Carrier

    def values(self, whole: Real[Tensor, "*batch chosen"]) -> Float[Tensor, "*batch chosen"]:
        """Return what levels, or means of them, stand for."""
        return (whole * (2 / (len(self.prior) - 1)) - 1).to(self.limits) * self.limits

    @property
    def means(self) -> Float[Tensor, " symbols"]:
        """What is subtracted from every symbol of a word before it is sent."""
        found = torch.full((LENGTH,), (self.code.prime - 1) / 2, dtype=torch.float64)
        found[: self.code.graph.information] = float(self.prior.double() @ torch.arange(len(self.prior)).double())
        return found


@scheme(
    "lattice-ldpc",
    sends="whole numbers and their parity checks over a prime field",
    needs="in phase",
    source="Xie et al. 2023",
    checked="derived",
    against="lost words over the distance to the computation rate ½ log2(1/K + SNR)",
)
class LatticeLdpc(MeanScheme):
    """Sums of codewords over a prime field.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = LatticeLdpcSettings
    side_information = MEAN_ENERGY
    for_more_devices = "raise uplink.devices"

    def __init__(self, settings: LatticeLdpcSettings, context: SchemeContext | None = None):
        self.settings, self.context, self.most_devices = settings, context or SchemeContext(), settings.devices
        self.rotation = make_rotation(settings.codeword_length, self.context.seed, self.context.device)

    def prime(self, levels: int) -> int:
        """Return the least prime that sums of all devices stay below."""
        return prime_above(self.settings.devices * (levels - 1))

    def check_round(self, num_slots: int, num_active: int) -> None:
        """Refuse a round that is shorter than a codeword."""
        self._check_room(num_slots * self.settings.codeword_length)

    def _check_room(self, room: int) -> None:
        if room < LENGTH:
            raise ConfigError(
                f"a codeword of {self.name} has {LENGTH} symbols, but the round has {room} channel uses for data; use a "
                "larger model, a longer uplink.codeword_length or another uplink"
            )

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce the scale of every layer, how often each level occurs, and the rate."""
        size, seed = base_update.numel(), new_seed(rng)
        air = plan_round(size, self.settings, self.context)
        self._check_room(air.room)
        layers = self._layers(size).to(base_update.device)
        rms = layer_scales(base_update, layers)
        number = remembered(memory, NUM_DEVICES)
        plan = self.plan(
            (base_update / rms.clamp(min=SMALLEST)[layers]).double(),
            air.room,
            remembered(memory, NOISE_VAR),
            max(round(number), 1) if number else None,
        )
        scales = (rms * plan.clip).clamp(min=SMALLEST)
        seen = torch.bincount(nearest_level(base_update / scales[layers], plan.levels), minlength=plan.levels) + 1.0
        values = {
            "scales": scales,
            "prior": (seen / seen.sum()).float(),
            "rate": torch.tensor([plan.levels, plan.graph], dtype=torch.uint8),
            "louder": torch.tensor(plan.louder),
            "seed": seed,
        }
        return Broadcast(size, air.num_uses, values), base_update

    def plan(self, own: Float[Tensor, " params"], room: int, noise_var: float | None, num_devices: int | None) -> Plan:
        """Choose the rate with the least error for the noise and the number of devices of the last round.

        Args:
            own: The base station's own update, every layer of mean energy one.
            room: Numbers that the round has room for.
            noise_var: Noise variance of a channel use; None: nothing is known, so the lowest rate is taken.
            num_devices: How many devices sent.
        """
        fitting = [i for i, g in enumerate(GRAPHS) if -(-len(own) // g.information) * LENGTH <= room]
        graphs = fitting or [len(GRAPHS) - 1]
        if noise_var is None or num_devices is None:
            return Plan(2, graphs[0], _clips(own, 2)[0], 1.0)
        least, best = (True, math.inf), Plan(LEVELS[0], graphs[0], CLIPS[0], 1.0)
        number = min(num_devices, self.settings.devices)
        possible = [q for q in LEVELS if q == LEVELS[0] or self.prime(q) <= LARGEST_PRIME]
        for levels, clip in ((q, c) for q in reversed(possible) for c in _clips(own, q)):
            quantised, of_level = _distortion(own, levels, clip), _occurrences(own, levels, clip)
            if (False, quantised) >= least:
                continue
            for graph, louder in ((g, e) for g in reversed(graphs) for e in LOUDER):  # high rates take less time
                decoded, variance = self._outcome(room, noise_var, number, of_level, graph, louder, len(own))
                sent = min(room // LENGTH * GRAPHS[graph].information / max(len(own), 1), 1.0)
                error = quantised + (0.0 if decoded else variance * (2 * clip / (levels - 1) / number) ** 2)
                rank = (not decoded, sent * error + 1 - sent)
                if rank < least:
                    least, best = rank, Plan(levels, graph, clip, louder)
                if decoded and sent == 1:  # no other code of these levels has less error
                    break
        return best

    def _outcome(
        self,
        room: int,
        noise_var: float,
        number: int,
        of_level: Float[Tensor, " levels"],
        graph: int,
        louder: float,
        size: int,
    ) -> tuple[bool, float]:
        """Return whether words will be decoded, and the variance of a sum that the channel alone leaves."""
        chosen, prime = GRAPHS[graph], self.prime(len(of_level))
        words = min(-(-size // chosen.information), room // LENGTH)
        together = -(
            -words * LENGTH // (room // self.settings.codeword_length)
        )  # numbers of a slot, which share its energy
        share = LENGTH / (chosen.information * louder + chosen.checks)
        spread = torch.arange(len(of_level), dtype=torch.float64)
        variance = float(of_level @ spread.square() - (of_level @ spread) ** 2)
        noise = noise_var * together / share
        equal = torch.full((prime,), 1 / prime, dtype=torch.float64)
        information, left = uncertainty(noise * max(variance, 1e-3) / louder, sum_prior(of_level, number), prime)
        parity, _ = uncertainty(noise * (prime**2 - 1) / 12, sum_prior(equal, number), prime)
        open_symbols = chosen.information * information + chosen.checks * parity
        return open_symbols <= chosen.checks - SPARE, left

    def _layers(self, num_params: int) -> Int[Tensor, " params"]:
        return self.context.parameter_layers(num_params, self.settings.fragment_length).to(self.rotation.device)

    def _round(self, broadcast: Broadcast) -> LatticeRound:
        """Return what both sides derive from the broadcast."""
        size, values = broadcast.num_params, broadcast.values
        number, graph = values["rate"].tolist()
        air = plan_round(size, self.settings, self.context)
        chosen_graph, louder, prior = GRAPHS[graph], float(values["louder"]), values["prior"].double().cpu()
        words = min(-(-size // chosen_graph.information), air.room // LENGTH)
        chosen = chosen_parameters(values["seed"], size, words * chosen_graph.information)
        limits = values["scales"][take(self._layers(size), chosen)]
        code = make_code(self.prime(number), chosen_graph)
        spread = torch.arange(number, dtype=torch.float64)
        variance = max(float(prior @ spread.square() - (prior @ spread) ** 2), 1e-3)
        amplitudes = torch.full((LENGTH,), ((code.prime**2 - 1) / 12) ** -0.5, dtype=torch.float64)
        amplitudes[: chosen_graph.information] = math.sqrt(louder / variance)
        carrier = carrier_of(self, air, words * LENGTH, LENGTH)
        return LatticeRound(chosen, limits, prior, code, words, amplitudes, carrier)

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send every word's information and parity as points."""
        of_round = self._round(broadcast)
        carrier, air = of_round.carrier, of_round.carrier.air
        whole = nearest_level(take(messages, of_round.chosen) / of_round.limits, len(of_round.prior))
        missing = of_round.words * of_round.code.graph.information - whole.shape[1]
        words = of_round.code.encode(torch.nn.functional.pad(whole, (0, missing)).unflatten(1, (of_round.words, -1)))
        points = ((words - of_round.means.to(words.device)) * of_round.amplitudes.to(words.device)).to(messages)
        slots = carrier.slots_of(points.flatten(1))
        scale = amplitude_of_one(csi.as_reported(slots))
        speaking = csi.speaking(air.slots, air.uses)
        values = of_round.values(whole)
        if speaking is not None:
            spoken = carrier.of_slots(speaking[:, air.rows]).unflatten(1, (of_round.words, LENGTH))
            values = values * spoken[:, :, : of_round.code.graph.information].flatten(1)[:, : values.shape[1]].to(
                values
            )
        return Sent(
            carrier.send(slots * scale),
            put(values, of_round.chosen, broadcast.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale, dtype=torch.float64)},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Decode the sum of the devices' words, and divide by their number."""
        of_round = self._round(broadcast)
        carrier, air, heard = of_round.carrier, of_round.carrier.air, in_phase(received)
        told = hear_devices(heard, air, csi)
        number = carrier.of_slots(told.in_slots[air.rows].round().clamp(max=self.settings.devices))
        scale = float(broadcast.agreed["scale"])
        block = carrier.of_slots(
            slot_blocks(air.slots, air.uses, csi.block_uses or air.num_uses)[air.rows].to(heard.device)
        )
        sums, lost = self._sums(carrier.numbers_of(carrier.hear(heard)), scale, told.noise_var, number, block, of_round)
        devices = number.unflatten(0, (of_round.words, LENGTH))[:, : of_round.code.graph.information].flatten()
        devices = devices[: len(of_round.limits)]
        mean = of_round.values(sums[: len(devices)] / devices.clamp(min=1)) * (devices > 0)
        if self.context.include_base_station:
            mean = (mean * devices + take(private, of_round.chosen).to(mean)) / (devices + 1)
        found = Mean(
            mean=put(mean, of_round.chosen, broadcast.num_params),
            num_active_hat=told.num_active,
            diagnostics={"words_lost": lost},
        )
        return found, remember(told)

    def _sums(
        self,
        heard: Tensor,
        scale: float,
        noise_var: float,
        number: Tensor,
        block: Tensor,
        of_round: LatticeRound,
    ) -> tuple[Float[Tensor, " information"], float]:
        """Return the sum of every information symbol, and the share of words that were not decoded."""
        information = of_round.code.graph.information
        found, lost = [], 0
        known = (torch.arange(of_round.words * information) < len(of_round.limits)).unflatten(0, (-1, information))
        parts = (part.unflatten(0, (of_round.words, LENGTH)).split(WORDS) for part in (heard, number, block))
        for y, devices, blocks, sent in zip(*parts, known.split(WORDS), strict=True):
            channel = self._channel(y, scale, noise_var, devices, of_round)
            nothing = ~sent.to(channel.device)  # zeros behind the last parameter
            channel[:, :information][nothing] = torch.eye(channel.shape[2])[0].to(channel)
            words, right, beliefs = _decoded(channel, of_round.code, (blocks == blocks[:, :1]).all(dim=1))
            soft = beliefs[:, :information] @ torch.arange(channel.shape[2], dtype=channel.dtype, device=channel.device)
            sums = torch.where(right[:, None], words[:, :information].to(soft), soft)
            # a wrong word may hold sums that so many devices cannot have
            found.append(sums.minimum(devices[:, :information] * (len(of_round.prior) - 1)).flatten())
            lost += int((~right).sum())
        return torch.cat(found), lost / max(of_round.words, 1)

    def _channel(
        self,
        heard: Tensor,
        scale: float,
        noise_var: float,
        number: Tensor,
        of_round: LatticeRound,
    ) -> Float[Tensor, "words symbols prime"]:
        """Return the distribution of every residue, as the channel and the prior tell it."""
        prime, information = of_round.code.prime, of_round.code.graph.information
        loud = of_round.amplitudes.to(heard) * max(scale, 1e-30)
        centred = heard / loud + number * of_round.means.to(heard)
        channel = heard.new_zeros(*heard.shape, prime)
        channel[:, :, 0] = 1
        equal = torch.full((prime,), 1 / prime, dtype=torch.float64)
        for part, of_one in ((slice(information), of_round.prior), (slice(information, LENGTH), equal)):
            y, devices, told = centred[:, part], number[:, part], channel[:, part]
            noise = noise_var / float(loud[part][0]) ** 2
            for count in devices.unique().tolist():
                if count > 0:
                    some = devices == count
                    told[some] = residues(y[some], noise, sum_prior(of_one, int(count)), prime)
        return channel


def _decoded(
    channel: Float[Tensor, "words symbols prime"], code: Code, in_one_block: Bool[Tensor, " words"]
) -> tuple[Tensor, Tensor, Tensor]:
    """Decode the words that leave fewer symbols open than there are checks: no decoder can tell what others are.

    A device that is silent in a part of a word makes the sum no codeword, so words in two coherence blocks are not decoded.
    """
    open_symbols = torch.special.entr(channel).sum(dim=(1, 2)) / math.log(code.prime)
    words = channel.argmax(dim=2)
    right = code.holds(words)
    some = (open_symbols < code.graph.checks) & ~right & in_one_block
    if not some.any():
        return words, right, channel
    beliefs = channel.clone()
    words[some], right[some], beliefs[some] = ldpc.decode(channel[some], code)
    return words, right, beliefs


def _occurrences(own: Float[Tensor, " params"], levels: int, clip: float) -> Float[Tensor, " levels"]:
    """Return how often each level occurs."""
    found = torch.bincount(nearest_level(own / clip, levels), minlength=levels) + 1.0
    return (found / found.sum()).cpu().double()


def _clips(own: Float[Tensor, " params"], levels: int) -> list[float]:
    """Return the outermost levels with the least error, and then wider ones: more symbols have the usual level."""
    best = min(CLIPS, key=lambda clip: _distortion(own, levels, clip))
    return [clip for clip in CLIPS if clip >= best][:TRIED]


def _distortion(own: Float[Tensor, " params"], levels: int, clip: float) -> float:
    """Return what rounding to levels leaves of an update."""
    rounded = nearest_level(own / clip, levels) * (2 * clip / (levels - 1)) - clip
    return float((rounded - own).square().mean()) if len(own) else 0.0
