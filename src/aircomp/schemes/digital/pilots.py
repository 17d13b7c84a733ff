"""Shared pilots behind the slots of the digital link: every device sends one known sequence, which tells their number.

broadcast: slots that are left out, a random part each round, so that the round is as long as without pilots
devices:   codewords of the other slots, then pilots
decode:    pilots ──► number of devices and noise ──► link
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.decoders.estimate.heard_pilots import PilotEstimate, hear_pilots
from aircomp.decoders.estimate.moments import RoundMoments
from aircomp.decoders.estimate.number import count_devices, counting_direction, join_numbers, whole_devices
from aircomp.encode.pilots import WithPilots, data_slots, last_slots, num_pilots, pilot_sequence
from aircomp.encode.schedule import leave_out
from aircomp.quantize.fragment import num_slots
from aircomp.schemes.base import Broadcast, Memory, Private, Sent, in_phase
from aircomp.schemes.digital.link import Digital, Wrapper
from aircomp.schemes.digital.slots import SomeSlots
from aircomp.schemes.outputs import Counts


class Pilots(SomeSlots):
    """The digital link with pilots.

    Args:
        link: Sends and counts the other slots.
        pilots: How many slots carry pilots; None: one in fifty, from 4 to 64.
        equal: Whether codewords have equal energy; then a direction that they have in common tells devices, too.
        tells_noise: Whether the decoder is given the noise that pilots tell. Slots of short codewords that were decoded
            wrongly look like noise, so that it cannot estimate its own.
    """

    def __init__(
        self, link: Digital | Wrapper, pilots: int | None = None, *, equal: bool = True, tells_noise: bool = False
    ):
        super().__init__(link)
        self.pilots, self.uses, self.tells_noise = pilots, link.codebook.shape[1], tells_noise
        self.direction = counting_direction(link.codebook) if equal else None

    def _number(self, slots: int) -> int:
        return num_pilots(slots) if self.pilots is None else self.pilots

    def broadcast(
        self,
        base_update: Float[Tensor, " params"],
        memory: Memory,
        *,
        rng: torch.Generator,
        slots: Int[Tensor, " slots"] | None = None,
    ) -> tuple[Broadcast, Private]:
        """Draw the slots that pilots take the place of."""
        number = num_slots(base_update.numel(), self.length)
        pilots = self._number(number)
        kept = leave_out(None, number, pilots, rng=rng).to(base_update.device)
        announced, private = self.announce(base_update, memory, kept, slots, rng)
        left_out = data_slots(number, kept.cpu()).to(torch.int32).to(base_update.device)
        uses = announced.num_uses + pilots * self.uses
        return Broadcast(base_update.numel(), uses, {**announced.values, "left_out": left_out}), private

    def _read(self, broadcast: Broadcast) -> tuple[int, Int[Tensor, " kept"], Broadcast]:
        """Return how many pilots there are, the slots that are sent, and the broadcast of the link."""
        left_out, slots = broadcast.values["left_out"], num_slots(broadcast.num_params, self.length)
        kept = data_slots(slots, left_out.cpu().long()).to(left_out.device)
        pilots = self._number(slots)
        return pilots, kept, self.inner(broadcast, kept, broadcast.num_uses - pilots * self.uses)

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send what the link would, and the pilots behind it."""
        pilots, kept, inner = self._read(broadcast)
        sent = self.link.encode(self.part(messages, kept), inner, csi, rng=rng)
        data, signal = inner.num_uses // self.uses, sent.signal
        with_pilots = WithPilots(signal, pilot_sequence(self.uses), last_slots(data, pilots))  # pyright: ignore
        speaking = csi.speaking(data + pilots, self.uses)
        sent = replace(sent, signal=with_pilots, delivered=speaking, pilot_uses=pilots * self.uses)
        return self.whole(sent, broadcast, kept)

    def decode(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        broadcast: Broadcast,
        private: Private,
        csi: AtReceiver,
    ) -> tuple[Counts, Memory]:
        """Tell the link what pilots tell."""
        pilots, kept, inner = self._read(broadcast)
        heard = in_phase(received)
        data = len(heard) - pilots
        told = hear_pilots(heard, pilot_sequence(self.uses), last_slots(data, pilots))
        known = replace(
            csi,
            num_active=self._num_active(told, heard[:data]),
            noise_var=told.noise_var if self.tells_noise else None,
            pilot_noise=(told.noise_var, told.noise_error),
        )
        output, memory = self.link.decode(heard[None, :data], inner, private, known)
        return self.placed(output, broadcast, kept), memory

    def _num_active(self, told: PilotEstimate, data: Float[Tensor, "slots uses"]) -> float:
        """Return the number of devices from pilots and, where codewords have a direction in common, from the data too."""
        if self.direction is None or len(data) < 2:
            return told.num_active
        counted = count_devices(RoundMoments.of(data), self.direction)
        return whole_devices(*join_numbers((told.num_active, told.num_active_error), counted))[0]

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Counts) -> dict[str, float]:
        """Compare as the link does."""
        pilots, _, inner = self._read(broadcast)
        signal: Any = sent.signal  # from `encode`
        delivered = None if sent.delivered is None else sent.delivered[:, :-pilots]
        return self.link.diagnose(replace(sent, signal=signal.data, delivered=delivered), inner, output)
