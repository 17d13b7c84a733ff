"""The digital link with pilots at the start of every coherence block, from which the base station learns channels.

    devices:      pilots of the block, then codewords as the digital link sends them
    base station: pilots ──► what they tell of channels ──► counts of the block

Pilots take the place of slots, so the round is as long as without, and cost energy like them. What is not sent for them stays
in the devices' error memory, a random part each round.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Complex, Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Signal, slot_blocks
from aircomp.common.packing import pack, unpack
from aircomp.decoders.base import Decoded
from aircomp.encode.own_pilots import first_of_blocks
from aircomp.encode.pilots import data_slots
from aircomp.encode.schedule import leave_out
from aircomp.errors import ConfigError
from aircomp.quantize.codebook import lookup
from aircomp.quantize.fragment import num_slots
from aircomp.schemes.base import Broadcast, Memory, Private, Sent
from aircomp.schemes.digital.link import Digital, DigitalPrivate, choose_codewords, counts_of, estimate_snr_db
from aircomp.schemes.digital.received import check_even
from aircomp.schemes.digital.slots import SomeSlots
from aircomp.schemes.outputs import Counts

DEVICES = "devices"
"""What devices and base station agree on, where each device has a sequence: how many send."""


@dataclass(frozen=True)
class BlockPilots(ABC):
    """Which slots of a round carry pilots, what devices send in them, and how the base station counts with them."""

    slots: int
    uses: int
    """Real channel uses of a slot."""
    block_uses: int
    """Channel uses of a block; 0: the round is one."""
    pilots: int = 1
    """Slots of every block that carry pilots."""

    def __post_init__(self) -> None:
        whole = min(self.slots, self.block_uses // self.uses) if self.block_uses else self.slots
        if whole <= self.pilots:
            raise ConfigError(
                f"{self.pilots} slots of pilots leave no other slot of a coherence block, which has {whole}; expected longer "
                "blocks (channel.block_slots), fewer pilots, or uplink = 'blind', which needs none"
            )

    @property
    def places(self) -> Int[Tensor, " pilots"]:
        """The slots with pilots."""
        return first_of_blocks(self.slots, self.uses, self.pilots, self.block_uses)

    @property
    def rows(self) -> Int[Tensor, " data"]:
        """The slots with data."""
        return data_slots(self.slots, self.places)

    def apart(
        self, received: Inexact[Tensor, "antennas slots uses"]
    ) -> tuple[Complex[Tensor, "antennas blocks pairs"], list[Tensor]]:
        """Return what was heard of the pilots of every block that has data, and of its data."""
        pairs = received if received.is_complex() else pack(received)
        block = slot_blocks(self.slots, self.uses, self.block_uses or self.slots * self.uses)
        sizes = block[self.rows].unique_consecutive(return_counts=True)[1].tolist()
        data = [pairs[:, rows.to(pairs.device)] for rows in self.rows.split(sizes)]
        pilots = pairs[:, self.places[: self.pilots * len(data)].to(pairs.device)]
        return pilots.unflatten(1, (len(data), self.pilots)).flatten(2), data

    @abstractmethod
    def check_devices(self, devices: int) -> None:
        """Refuse more devices than there are pilots for."""

    @abstractmethod
    def send(self, indices: Int[Tensor, "devices data"], codebook: Float[Tensor, "codewords uses"]) -> Signal:
        """Put the pilots before the data of every block."""

    @abstractmethod
    def hear(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        num_devices: int,
        codebook: Float[Tensor, "codewords uses"],
        popularity: Float[Tensor, " codewords"],
        csi: AtReceiver,
    ) -> Decoded:
        """Learn from the pilots, and count.

        Args:
            received: What the antennas heard.
            num_devices: How many devices send; for plans of an uplink that is told.
            codebook: One codeword a row.
            popularity: How often each is chosen, as the base station expects.
            csi: What it knows of the channel beside that.
        """


class BlockPiloted(SomeSlots):
    """Codewords of the digital link, heard with what pilots tell of channels.

    Args:
        link: What quantises, and the codewords.
        plan: The pilots of a round of so many slots.
    """

    def __init__(self, link: Digital, plan: Callable[[int], BlockPilots]):
        check_even(link.name, link.codebook)
        super().__init__(link)
        self.digital, self.plan, self.uses = link, plan, link.codebook.shape[1]
        self.estimates_num_active = not self.side_information

    def _plan(self, broadcast: Broadcast) -> BlockPilots:
        return self.plan(broadcast.num_uses // self.uses)

    def check_round(self, num_slots: int, num_active: int) -> None:
        """Refuse more devices than a round of so many slots has pilots for."""
        self.plan(num_slots).check_devices(num_active)

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
        kept = leave_out(None, number, len(self.plan(number).places), rng=rng).to(base_update.device)
        announced, private = self.announce(base_update, memory, kept, slots, rng)
        left_out = data_slots(number, kept.cpu()).to(torch.int32).to(base_update.device)
        return Broadcast(base_update.numel(), number * self.uses, {**announced.values, "left_out": left_out}), private

    def _read(self, broadcast: Broadcast) -> tuple[Int[Tensor, " kept"], Broadcast]:
        """Return the slots that are sent, and the broadcast of the link."""
        left_out, slots = broadcast.values["left_out"], num_slots(broadcast.num_params, self.length)
        kept = data_slots(slots, left_out.cpu().long()).to(left_out.device)
        return kept, self.inner(broadcast, kept, len(kept) * self.uses)

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send pilots and codewords; a silent device's do not count as sent."""
        plan, (kept, inner) = self._plan(broadcast), self._read(broadcast)
        indices = choose_codewords(self.part(messages, kept), inner)
        fragments = lookup(indices, broadcast.values["codebook"])
        speaking = csi.speaking(plan.slots, plan.uses)
        if speaking is not None:
            fragments = fragments * speaking[:, plan.rows, None].to(fragments)
        sent = Sent(
            plan.send(indices, self.codebook),
            fragments.flatten(1),
            speaking,
            len(plan.places) * plan.uses,
            {DEVICES: torch.tensor(len(messages))} if self.side_information else {},
        )
        return self.whole(sent, broadcast, kept)

    def decode(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        broadcast: Broadcast,
        private: DigitalPrivate,
        csi: AtReceiver,
    ) -> tuple[Counts, Memory]:
        """Learn from the pilots, then estimate how many devices sent each codeword, in every block."""
        kept, inner = self._read(broadcast)
        devices, popularity = int(broadcast.agreed.get(DEVICES, 0)), private.quantizer.popularity
        decoded = self._plan(broadcast).hear(received, devices, self.codebook, popularity, csi)
        output = counts_of(decoded, inner, private, self.context.include_base_station)
        noise = float(decoded.noise_var.double().mean()) / 2
        real = received if not received.is_complex() else unpack(received, 2 * received.shape[2])
        output = replace(output, diagnostics={"snr_db_hat": estimate_snr_db(real.flatten(0, 1), noise, 1)})
        return self.placed(output, broadcast, kept), {}

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Counts) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        plan, signal = self._plan(broadcast), sent.signal
        data = signal.data  # pyright: ignore[reportAttributeAccessIssue]  from a plan's `send`
        delivered = None if sent.delivered is None else sent.delivered[:, plan.rows]
        return self.digital.diagnose(replace(sent, signal=data, delivered=delivered), broadcast, output)

    def operations(self, num_slots: int) -> float | None:
        """Count while a round is decoded."""
        return None
