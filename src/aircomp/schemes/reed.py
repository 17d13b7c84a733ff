r"""Energies that add up (REED; Chen and Bozorgasl 2026): every parameter is the energy of a tone, so no phase need be known.

    devices:      messages [K_a, W] ──► energies of plus or minus, in random phase (`encode/tones.py`)
    base station: energy for plus less energy for minus ──► sums;  pilot slots, all plus one ──► K̂ ──► mean

With $S_\pm$ the sums of the positive and of the negative parts and $N_0$ the noise of a tone, $N_r$ antennas in Rayleigh
fading hear the sum $S_+ - S_-$ with the variance $[(S_+ + N_0)^2 + (S_- + N_0)^2]/N_r$. Noise cancels in the mean, but what
devices send is its own noise: on one antenna the error exceeds the sum itself, so this scheme is for many antennas.

All devices must be heard with the same mean power (`power.control = 'statistical'`); a device that is heard louder weighs
more. A parameter takes four real uses: where a round has fewer, it carries some parameters, as `fsk-mv` does.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Symbols
from aircomp.decoders.estimate.heard_pilots import hear_pilots
from aircomp.encode.carrier import Carrier, chosen_parameters, make_rotation, put, take
from aircomp.encode.pilots import pilot_sequence
from aircomp.encode.tones import USES, compare_tones, to_tones
from aircomp.errors import ConfigError
from aircomp.schemes.analog import LEAST_DEVICES
from aircomp.schemes.base import MEAN_ENERGY, Broadcast, MeanScheme, Memory, Private, SchemeContext, Sent, new_seed
from aircomp.schemes.outputs import Mean
from aircomp.schemes.piloted import carrier_of, plan_round
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import PilotedSettings


@dataclass(frozen=True)
class ReedRound:
    """What both sides derive from the broadcast."""

    chosen: Int[Tensor, " chosen"] | None
    carrier: Carrier


@scheme(
    "reed",
    sends="its update, as energies of two tones",
    needs="any, many antennas",
    source="Chen and Bozorgasl 2026",
    checked="derived",
    against="the error is [(S₊ + N₀)² + (S₋ + N₀)²]/(N_r(S₊ − S₋)²)",
)
class Reed(MeanScheme):
    """Parameters as energies.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = PilotedSettings
    side_information = MEAN_ENERGY
    reads_base = False

    def __init__(self, settings: PilotedSettings, context: SchemeContext | None = None):
        self.settings, self.context, self.uses = settings, context or SchemeContext(), settings.codeword_length
        if self.uses < USES:
            raise ConfigError(f"uplink.codeword_length = {self.uses}: reed needs {USES} uses in a slot; lengthen it")
        self.numbers = self.uses // USES
        self.rotation = make_rotation(self.uses, self.context.seed, self.context.device)

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce which parameters the round carries."""
        size, seed = base_update.numel(), new_seed(rng)
        air = plan_round(size, self.settings, self.context)
        some = len(air.rows) * self.numbers < size
        return Broadcast(size, air.num_uses, {"seed": seed} if some else {}), base_update

    def _round(self, broadcast: Broadcast) -> ReedRound:
        """Return what both sides derive from the broadcast."""
        size = broadcast.num_params
        air = plan_round(size, self.settings, self.context)
        chosen = chosen_parameters(broadcast.values.get("seed"), size, len(air.rows) * self.numbers)
        return ReedRound(chosen, carrier_of(self, air, size if chosen is None else len(chosen)))

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send roots, whose energies are the parameters; in pilots every number is plus one."""
        of_round = self._round(broadcast)
        carrier, air = of_round.carrier, of_round.carrier.air
        values = take(messages, of_round.chosen)
        slots = carrier.slots_of(values)
        told = csi.as_reported(slots.double().abs().sqrt()).square()  # the amplitudes of tones are roots
        energy = float(told.sum(dim=2).mean()) if len(told) else 0.0
        scale = 1 / energy if energy > 0 else 0.0
        roots = messages.new_full((len(messages), air.slots, self.numbers), self.numbers**-0.5)
        data = slots.sign() * (scale * slots.abs()).sqrt()
        roots[:, air.rows] = torch.nn.functional.pad(data, (0, self.numbers - carrier.per_slot))
        speaking = csi.speaking(air.slots, self.uses)
        return Sent(
            Symbols(to_tones(roots, self.uses, rng), 1 / self.uses),
            put(carrier.arrived(values, speaking), of_round.chosen, broadcast.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale, dtype=torch.float64)},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Compare energies; those of pilots tell the number of devices."""
        of_round = self._round(broadcast)
        carrier, air = of_round.carrier, of_round.carrier.air
        heard = compare_tones(received, self.numbers) / len(received)
        # a pilot slot has energy one for each device, spread over its numbers
        pilots, blocks = pilot_sequence(self.numbers), csi.slot_blocks(air.slots, self.uses)
        told = hear_pilots(heard * self.numbers**0.5, pilots, air.places, blocks)
        devices = carrier.of_slots(told.in_slots[air.rows].clamp(min=LEAST_DEVICES))
        sums = carrier.numbers_of(heard[air.rows, : carrier.per_slot])
        scale = float(broadcast.agreed["scale"])
        total = sums / scale if scale > 0 else torch.zeros_like(sums)
        if self.context.include_base_station:
            total, devices = total + take(private, of_round.chosen).to(total), devices + 1
        mean = put(total / devices, of_round.chosen, broadcast.num_params)
        return Mean(mean=mean, num_active_hat=told.num_active), {}
