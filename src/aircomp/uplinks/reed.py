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
from aircomp.decode.heard_pilots import hear_pilots
from aircomp.encode.carrier import Carrier, chosen_parameters, make_rotation, put, take
from aircomp.encode.pilots import pilot_sequence
from aircomp.encode.tones import USES, compare_tones, to_tones
from aircomp.errors import ConfigError
from aircomp.uplinks.analog import LEAST_DEVICES
from aircomp.uplinks.base import MEAN_ENERGY, Announced, MeanScheme, Memory, Sent, UplinkContext, new_seed
from aircomp.uplinks.outputs import Mean
from aircomp.uplinks.piloted import check_pilots, plan_round


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    update: Float[Tensor, " params"]
    chosen: Int[Tensor, " chosen"] | None
    carrier: Carrier


class ReedUplink(MeanScheme):
    """Parameters as energies.

    Args:
        fragment_length: Parameters that the digital link has in a slot.
        uses: Channel uses of a slot.
        pilots: Slots with pilots; None: as many as `plan_air` takes.
        context: What the link is made for.
    """

    name = "reed"
    side_information = MEAN_ENERGY

    def __init__(
        self, *, fragment_length: int, uses: int, pilots: int | None = None, context: UplinkContext | None = None
    ):
        check_pilots(self.name, pilots)
        if uses < USES:
            raise ConfigError(f"uplink.codeword_length = {uses}: reed needs {USES} uses in a slot; lengthen it")
        self.context, self.fragment_length, self.pilots = context or UplinkContext(), fragment_length, pilots
        self.uses, self.numbers = uses, uses // USES
        self.rotation = make_rotation(uses, self.context.seed, self.context.device)

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce which parameters the round carries."""
        size, seed = base_update.numel(), new_seed(rng)
        air = plan_round(size, self.fragment_length, self.uses, self.pilots, self.context)
        chosen = chosen_parameters(seed, size, len(air.rows) * self.numbers)
        carrier = Carrier(air, size if chosen is None else len(chosen), self.rotation)
        kept = Kept(base_update, chosen, carrier)
        return Announced(size, air.num_uses, {} if chosen is None else {"seed": seed}, kept)

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send roots, whose energies are the parameters; in pilots every number is plus one."""
        kept: Kept = announced.kept
        carrier, air = kept.carrier, kept.carrier.air
        values = take(messages, kept.chosen)
        slots = carrier.slots_of(values)
        energy = float(slots.double().abs().sum(dim=2).mean()) if len(slots) else 0.0
        scale = 1 / energy if energy > 0 else 0.0
        roots = messages.new_full((len(messages), air.slots, self.numbers), self.numbers**-0.5)
        data = slots.sign() * (scale * slots.abs()).sqrt()
        roots[:, air.rows] = torch.nn.functional.pad(data, (0, self.numbers - carrier.per_slot))
        speaking = csi.speaking(air.slots, self.uses)
        return Sent(
            Symbols(to_tones(roots, self.uses, rng), 1 / self.uses),
            put(carrier.arrived(values, speaking), kept.chosen, announced.num_params),
            speaking,
            pilot_uses=air.pilot_uses,
            agreed={"scale": torch.tensor(scale, dtype=torch.float64)},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Compare energies; those of pilots tell the number of devices."""
        kept: Kept = announced.kept
        carrier, air = kept.carrier, kept.carrier.air
        heard = compare_tones(received, self.numbers) / len(received)
        # a pilot slot has energy one for each device, spread over its numbers
        pilots, blocks = pilot_sequence(self.numbers), csi.slot_blocks(air.slots, self.uses)
        told = hear_pilots(heard * self.numbers**0.5, pilots, air.places, blocks)
        devices = carrier.of_slots(told.in_slots[air.rows].clamp(min=LEAST_DEVICES))
        sums = carrier.numbers_of(heard[air.rows, : carrier.per_slot])
        scale = float(announced.agreed["scale"])
        total = sums / scale if scale > 0 else torch.zeros_like(sums)
        if self.context.include_base_station:
            total, devices = total + take(kept.update, kept.chosen).to(total), devices + 1
        mean = put(total / devices, kept.chosen, announced.num_params)
        return Mean(mean=mean, num_active_hat=told.num_active), {}
