"""The digital link with pilots at the start of every coherence block, from which the base station learns channels.

    devices:      pilots of the block, then codewords as the digital link sends them
    base station: pilots ──► what they tell of channels ──► counts of the block

Pilots take the place of slots, so the round is as long as without, and cost energy like them. What is not sent for them stays
in the devices' error memory, a random part each round.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Complex, Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Signal, slot_blocks
from aircomp.common.packing import pack, unpack
from aircomp.decode.base import Decoded
from aircomp.decode.copies import estimate_snr_db
from aircomp.encode.own_pilots import first_of_blocks
from aircomp.encode.pilots import data_slots
from aircomp.errors import ConfigError
from aircomp.uplinks.base import Announced, Memory, Relay, Sent
from aircomp.uplinks.digital import DigitalUplink, Kept, choose_codewords, compare, counts_of, where_sent
from aircomp.uplinks.outputs import Counts
from aircomp.uplinks.receivers import check_even

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


class BlockPilotsUplink(Relay):
    """Codewords of the digital link, heard with what pilots tell of channels.

    Args:
        link: What is announced, with as many pilots as `plan` has, and the codewords.
        plan: The pilots of a round of so many slots.
        side_information: What the base station is told; nothing means that it estimates the number of devices.
    """

    offers = Counts

    def __init__(self, link: DigitalUplink, plan: Callable[[int], BlockPilots], side_information: tuple[str, ...] = ()):
        check_even(link.name, link.codebook)
        super().__init__(link)
        self.name, self.plan, self.side_information = link.name, plan, side_information
        self.estimates_num_active = not side_information

    def _plan(self, announced: Announced) -> BlockPilots:
        return self.plan(announced.num_uses // self.link.codebook.shape[1])

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send pilots and codewords; a silent device's do not count as sent."""
        plan = self._plan(announced)
        indices, reconstruction = choose_codewords(messages, announced)
        speaking = csi.speaking(plan.slots, plan.uses)
        if speaking is not None:
            reconstruction = where_sent(reconstruction, speaking[:, plan.rows], announced)
        return Sent(
            plan.send(indices, self.link.codebook),
            reconstruction,
            speaking,
            len(plan.places) * plan.uses,
            {DEVICES: torch.tensor(len(messages))} if self.side_information else {},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Counts, Memory]:
        """Learn from the pilots, then estimate how many devices sent each codeword, in every block."""
        kept: Kept = announced.kept
        devices, popularity = int(announced.agreed.get(DEVICES, 0)), kept.quantizer.popularity
        decoded = self._plan(announced).hear(received, devices, self.link.codebook, popularity, csi)
        output = counts_of(decoded, announced, self.link.context.include_base_station)
        noise = float(decoded.noise_var.double().mean()) / 2
        real = received if not received.is_complex() else unpack(received, 2 * received.shape[2])
        return replace(output, diagnostics={"snr_db_hat": estimate_snr_db(real.flatten(0, 1), noise, 1)}), {}

    def diagnose(self, sent: Sent, announced: Announced, output: Any) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        if sent.delivered is not None:
            sent = replace(sent, delivered=sent.delivered[:, self._plan(announced).rows])
        return compare(sent, announced, output)
