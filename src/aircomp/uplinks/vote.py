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

from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from pydantic import Field
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Symbols
from aircomp.common.settings import Settings
from aircomp.decode.heard_pilots import in_phase
from aircomp.encode.carrier import Carrier, chosen_parameters, make_rotation, plan_air, put, take
from aircomp.encode.tones import USES, compare_tones, to_tones
from aircomp.errors import ConfigError
from aircomp.quantize.fragment import num_slots
from aircomp.uplinks.base import Announced, Memory, Scheme, Sent, UplinkContext, new_seed
from aircomp.uplinks.outputs import Vote

KINDS = ("obda", "fsk-mv")
TIE = 1e-3
"""A sum below this share of one device's amplitude is a tie, and no step is taken; only rounds without noise have ties."""


class VoteSettings(Settings):
    """How long the step after a vote is."""

    rate: float = Field(default=1.0, gt=0, le=1e6)
    """Step of every parameter, over the mean absolute value of the base station's own update."""
    decay: float = Field(default=1.0, gt=0, le=1)
    """Factor of the rate from round to round; the base station's own updates shrink with training, too."""


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    size: float
    chosen: Int[Tensor, " chosen"] | None
    carrier: Carrier
    rounds: int
    """Votes before this one."""

    @property
    def amplitude(self) -> float:
        """The amplitude of a sign with which a slot has energy one on average."""
        return (len(self.carrier.air.rows) / max(self.carrier.numbers, 1)) ** 0.5


class VoteUplink(Scheme):
    """Signs over the air.

    Args:
        name: One of `KINDS`.
        settings: Its options.
        fragment_length: Parameters that the digital link puts into a slot.
        uses: Channel uses of a slot.
        context: What the link is made for.
    """

    offers = Vote
    estimates_num_active = False

    def __init__(
        self,
        name: str,
        settings: VoteSettings,
        *,
        fragment_length: int,
        uses: int,
        context: UplinkContext | None = None,
    ):
        self.name, self.settings, self.context = name, settings, context or UplinkContext()
        if self.context.include_base_station:
            raise ConfigError(
                f"server.include_base_station = true: the votes of {name} leave no room for one; turn it off"
            )
        if name == "fsk-mv" and uses < USES:
            raise ConfigError(f"uplink.codeword_length = {uses}: fsk-mv needs {USES} uses in a slot; lengthen it")
        self.fragment_length, self.uses = fragment_length, uses
        self.rotation = make_rotation(uses, self.context.seed, self.context.device)

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce which parameters the round carries."""
        air = plan_air(num_slots(base_update.numel(), self.fragment_length), self.uses, pilots=0)
        room = air.room if self.name == "obda" else air.slots * (self.uses // USES)
        seed, size = new_seed(rng), base_update.numel()
        chosen = chosen_parameters(seed, size, room)
        carrier = Carrier(air, size if chosen is None else len(chosen), self.rotation)
        rounds = int(memory.get("rounds", torch.tensor(0)))
        kept = Kept(float(base_update.abs().mean()), chosen, carrier, rounds)
        return Announced(size, air.num_uses, {} if chosen is None else {"seed": seed}, kept)

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send signs; a parameter that does not change sends plus or minus at random, on each device by itself."""
        kept: Kept = announced.kept
        carrier, values = kept.carrier, take(messages, kept.chosen)
        coin = torch.randint(2, values.shape, generator=rng).to(values) * 2 - 1
        signs = torch.where(values == 0, coin, values.sign())
        slots = carrier.slots_of(kept.amplitude * signs)
        signal = carrier.send(slots) if self.name == "obda" else Symbols(to_tones(slots, self.uses, rng), 1 / self.uses)
        speaking = csi.speaking(carrier.air.slots, self.uses)
        sent = carrier.arrived(values, speaking)
        return Sent(signal, put(sent, kept.chosen, announced.num_params), speaking)

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Vote, Memory]:
        """Take the sign of the received sum, or of the difference of the two tones' energies."""
        kept: Kept = announced.kept
        carrier = kept.carrier
        if self.name == "obda":
            votes = carrier.hear(in_phase(received))
            votes = votes * (votes.abs() > TIE * kept.amplitude)
        else:
            votes = compare_tones(received, carrier.per_slot)
        signs = put(carrier.numbers_of(votes).sign(), kept.chosen, announced.num_params)
        step = kept.size * self.settings.rate * self.settings.decay**kept.rounds
        return Vote(signs=signs, size=step), {"rounds": torch.tensor(kept.rounds + 1)}

    def diagnose(self, sent: Sent, announced: Announced, output: Vote) -> dict[str, float]:
        """Compare with the majority of what was sent."""
        votes = sent.reconstruction.sign().sum(dim=0)
        clear = votes != 0
        wrong = (output.signs[clear] != votes[clear].sign()).double().mean() if clear.any() else torch.zeros(())
        return {"vote_error": float(wrong)}
