r"""Votes: every device sends the signs of its update, and the base station hears which sign has the majority.

    devices:      signs of messages [K_a, W] ──► +1 or −1 (`obda`), or one of two tones (`fsk-mv`)
    base station: sign of the sum, or the louder tone ──► signs ──► a step of the same size for all parameters

`obda` (Zhu et al. 2021) sends ±1 as analog transmission sends a number. Signals must arrive in phase.

`fsk-mv` (Şahin et al. 2021) has two tones for each parameter, one for plus and one for minus. A tone is one complex channel
use. A device puts the energy of the parameter on the tone of its sign, with a random phase. The base station compares the
energies of the two tones, summed over all antennas. So nobody needs to know a channel. A parameter takes four real uses. A
round with fewer carries only some of the parameters. The vote can be wrong even without noise: if $K_-$ of $K$ devices are in
the minority, one antenna under Rayleigh fading errs with probability $K_-/K$.

A vote has no length. The length of the step is the mean absolute value of the base station's own update, times a rate that
may decay over the rounds. What is not sent stays in the error memory. What is sent counts as arrived.
"""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Signal, Symbols
from aircomp.encode.carrier import Air, Carrier, chosen_parameters, make_rotation, plan_air, put, take
from aircomp.encode.tones import USES, compare_tones, to_tones
from aircomp.errors import ConfigError
from aircomp.quantize.fragment import num_slots
from aircomp.schemes.base import Broadcast, Memory, Private, Scheme, SchemeContext, Sent, in_phase, new_seed
from aircomp.schemes.outputs import Vote
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import VoteSettings

TIE = 1e-3
"""A sum below this share of one device's amplitude is a tie, and no step is taken; only rounds without noise have ties."""


@dataclass(frozen=True)
class VoteRound:
    """What both sides derive from the broadcast."""

    chosen: Int[Tensor, " chosen"] | None
    carrier: Carrier

    @property
    def amplitude(self) -> float:
        """The amplitude of a sign with which a slot has energy one on average."""
        return (len(self.carrier.air.rows) / max(self.carrier.numbers, 1)) ** 0.5


@dataclass(frozen=True)
class VoteSize:
    """What the base station keeps: how long its own update is, and how many votes there were before this one."""

    size: float
    rounds: int


class VoteScheme(Scheme):
    """Signs over the air.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = VoteSettings
    offers = Vote
    estimates_num_active = False

    def __init__(self, settings: VoteSettings, context: SchemeContext | None = None):
        self.settings, self.context, self.uses = settings, context or SchemeContext(), settings.codeword_length
        if self.context.include_base_station:
            raise ConfigError(
                f"server.include_base_station = true: the votes of {self.name} leave no room for one; turn it off"
            )
        self.rotation = make_rotation(self.uses, self.context.seed, self.context.device)

    def _plan(self, num_params: int) -> tuple[Air, int]:
        """Return the slots of a round, and how many parameters they have room for."""
        air = plan_air(num_slots(num_params, self.settings.fragment_length), self.uses, pilots=0)
        return air, self._room(air)

    @abstractmethod
    def _room(self, air: Air) -> int:
        """Return how many parameters a round has room for."""

    @abstractmethod
    def _signal(self, slots: Float[Tensor, "devices data numbers"], carrier: Carrier, rng: torch.Generator) -> Signal:
        """Return the signal of signs in slots."""

    @abstractmethod
    def _votes(
        self, received: Inexact[Tensor, "antennas slots uses"], of_round: VoteRound
    ) -> Float[Tensor, "data numbers"]:
        """Return numbers of the majority's sign, zero for a tie."""

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce which parameters the round carries."""
        size, seed = base_update.numel(), new_seed(rng)
        air, room = self._plan(size)
        private = VoteSize(float(base_update.abs().mean()), int(memory.get("rounds", torch.tensor(0))))
        return Broadcast(size, air.num_uses, {"seed": seed} if room < size else {}), private

    def _round(self, broadcast: Broadcast) -> VoteRound:
        """Return what both sides derive from the broadcast."""
        size = broadcast.num_params
        air, room = self._plan(size)
        chosen = chosen_parameters(broadcast.values.get("seed"), size, room)
        return VoteRound(chosen, Carrier(air, size if chosen is None else len(chosen), self.rotation))

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send signs; a parameter that does not change sends plus or minus at random, on each device by itself."""
        of_round = self._round(broadcast)
        carrier, values = of_round.carrier, take(messages, of_round.chosen)
        coin = torch.randint(2, values.shape, generator=rng).to(values) * 2 - 1
        signs = torch.where(values == 0, coin, values.sign())
        signal = self._signal(carrier.slots_of(of_round.amplitude * signs), carrier, rng)
        speaking = csi.speaking(carrier.air.slots, self.uses)
        sent = carrier.arrived(values, speaking)
        return Sent(signal, put(sent, of_round.chosen, broadcast.num_params), speaking)

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Vote, Memory]:
        """Take the sign of the received sum, or of the difference of the two tones' energies."""
        of_round, own = self._round(broadcast), private
        votes = of_round.carrier.numbers_of(self._votes(received, of_round))
        signs = put(votes.sign(), of_round.chosen, broadcast.num_params)
        step = own.size * self.settings.rate * self.settings.decay**own.rounds
        return Vote(signs=signs, size=step), {"rounds": torch.tensor(own.rounds + 1)}

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Vote) -> dict[str, float]:
        """Compare with the majority of what was sent."""
        votes = sent.reconstruction.sign().sum(dim=0)
        clear = votes != 0
        wrong = (output.signs[clear] != votes[clear].sign()).double().mean() if clear.any() else torch.zeros(())
        return {"vote_error": float(wrong)}


@scheme(
    "obda",
    sends="signs",
    needs="in phase",
    source="Zhu et al. 2021",
    checked="recalled",
    against="votes err as the Gaussian tail says",
)
class Obda(VoteScheme):
    """Signs as analog numbers."""

    settings_class = VoteSettings

    def _room(self, air: Air) -> int:
        return air.room

    def _signal(self, slots: Float[Tensor, "devices data numbers"], carrier: Carrier, rng: torch.Generator) -> Signal:
        return carrier.send(slots)

    def _votes(
        self, received: Inexact[Tensor, "antennas slots uses"], of_round: VoteRound
    ) -> Float[Tensor, "data numbers"]:
        votes = of_round.carrier.hear(in_phase(received))
        return votes * (votes.abs() > TIE * of_round.amplitude)


@scheme(
    "fsk-mv",
    sends="signs, as one of two tones",
    needs="any",
    source="Şahin et al. 2021",
    checked="verified",
    against="votes err as the incomplete beta function says",
)
class FskMv(VoteScheme):
    """Signs as tones."""

    settings_class = VoteSettings

    def __init__(self, settings: VoteSettings, context: SchemeContext | None = None):
        super().__init__(settings, context)
        if self.uses < USES:
            raise ConfigError(f"uplink.codeword_length = {self.uses}: fsk-mv needs {USES} uses in a slot; lengthen it")

    def _room(self, air: Air) -> int:
        return air.slots * (self.uses // USES)

    def _signal(self, slots: Float[Tensor, "devices data numbers"], carrier: Carrier, rng: torch.Generator) -> Signal:
        return Symbols(to_tones(slots, self.uses, rng), 1 / self.uses)

    def _votes(
        self, received: Inexact[Tensor, "antennas slots uses"], of_round: VoteRound
    ) -> Float[Tensor, "data numbers"]:
        return compare_tones(received, of_round.carrier.per_slot)
