"""The digital link to a base station that learns every device's channel from pilots (receiver CSI).

    devices:      at the start of every coherence block a sequence of one's own, then codewords as the digital link sends them
    base station: pilots ──► every device's gain on every antenna ──► which codeword did each device send ──► counts

Pilots take the place of slots, so the round is as long as without, and cost energy like them. What is not sent for them stays
in the devices' error memory, a random part each round.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Complex, Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common.packing import pack, unpack
from aircomp.decode.base import Decoded
from aircomp.decode.copies import estimate_snr_db
from aircomp.decode.learnt_channels import LearntChannels, ReceiverCsiSettings, learn_channels
from aircomp.encode.own_pilots import WithOwnPilots, first_of_blocks, own_sequences
from aircomp.encode.pilots import data_slots
from aircomp.encode.signal import Codewords
from aircomp.encode.spread import Spread
from aircomp.errors import ConfigError
from aircomp.uplinks.base import Announced, Memory, Relay, Sent
from aircomp.uplinks.digital import DigitalUplink, Kept, choose_codewords, compare, counts_of, where_sent
from aircomp.uplinks.outputs import Counts
from aircomp.uplinks.radio import joined
from aircomp.uplinks.receivers import RECEIVER_CSI, check_even

DEVICES = "devices"
"""What devices and base station agree on: how many send, so that each has its sequence."""


@dataclass(frozen=True)
class PilotPlan:
    """Which slots of a round carry pilots, and which sequence each device sends in them."""

    slots: int
    uses: int
    """Real channel uses of a slot."""
    block_uses: int
    """Channel uses of a block; 0: the round is one."""
    settings: ReceiverCsiSettings = field(default_factory=ReceiverCsiSettings)

    def __post_init__(self) -> None:
        whole = min(self.slots, self.block_uses // self.uses) if self.block_uses else self.slots
        if whole <= self.pilots:
            raise ConfigError(
                f"uplink.receiver_csi.pilots = {self.pilots} leaves no slot of a coherence block, which has {whole}; "
                "expected longer blocks (channel.block_slots), fewer pilots, or uplink = 'blind', which needs none"
            )

    @property
    def pilots(self) -> int:
        """Slots of every block that carry pilots."""
        return self.settings.pilots

    @property
    def places(self) -> Int[Tensor, " pilots"]:
        """The slots with pilots."""
        return first_of_blocks(self.slots, self.uses, self.pilots, self.block_uses)

    @property
    def rows(self) -> Int[Tensor, " data"]:
        """The slots with data."""
        return data_slots(self.slots, self.places)

    @property
    def sequences(self) -> Complex[Tensor, "sequences pairs"]:
        """What devices send in the pilots of a block: energy one in every slot."""
        return own_sequences(self.pilots * self.uses // 2, float(self.pilots))

    def send(self, indices: Int[Tensor, "devices data"], codebook: Float[Tensor, "codewords uses"]) -> WithOwnPilots:
        """Put the pilots before the data of every block.

        Raises:
            ConfigError: If there are more devices than sequences.
        """
        room = len(self.sequences) - 1  # what nobody sends tells the noise
        if len(indices) > room:
            needed = -(-2 * (len(indices) + 1) // self.uses)
            raise ConfigError(
                f"{len(indices)} devices need a pilot each, but uplink.receiver_csi.pilots = {self.pilots} has room for "
                f"{room} in a coherence block; expected at least {needed}"
            )
        of_block = unpack(self.sequences, self.pilots * self.uses)[: len(indices)].unflatten(
            1, (self.pilots, self.uses)
        )
        blocks = -(-len(self.places) // self.pilots)
        values = of_block.repeat(1, blocks, 1)[:, : len(self.places)].to(codebook)
        return WithOwnPilots(
            Codewords(indices, codebook), Spread(values, torch.eye(self.uses).to(codebook)), self.places
        )

    def hear(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        num_devices: int,
        codebook: Float[Tensor, "codewords uses"],
        popularity: Float[Tensor, " codewords"],
        csi: AtReceiver,
    ) -> Decoded:
        """Learn the channels of every block that has data, and count with them."""
        pairs = received if received.is_complex() else pack(received)
        block = torch.arange(self.slots) * self.uses // (self.block_uses or self.slots * self.uses)
        sizes = block[self.rows].unique_consecutive(return_counts=True)[1].tolist()
        data = [rows.to(pairs.device) for rows in self.rows.split(sizes)]
        pilots = pairs[:, self.places[: self.pilots * len(data)].to(pairs.device)]
        learnt = learn_channels(
            pilots.unflatten(1, (len(data), self.pilots)).flatten(2),
            self.sequences,
            num_devices,
            silence=csi.gain_model.silence,
        )
        receiver = LearntChannels(pack(codebook), self.settings.passes)
        return joined(receiver.receive(learnt, [pairs[:, rows] for rows in data], popularity))


class ReceiverCsiUplink(Relay):
    """Codewords of the digital link, heard with channels from pilots.

    Args:
        link: What is announced, with as many pilots as `plan` has, and the codewords.
        plan: Where pilots go in a round of so many slots.
    """

    name, offers = RECEIVER_CSI, Counts
    estimates_num_active = False
    side_information = ("which devices send, so that each has a pilot of its own",)

    def __init__(self, link: DigitalUplink, plan: Callable[[int], PilotPlan]):
        check_even(RECEIVER_CSI, link.codebook)
        super().__init__(link)
        self.plan = plan

    def _plan(self, announced: Announced) -> PilotPlan:
        return self.plan(announced.num_uses // self.link.codebook.shape[1])

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send a pilot of one's own, and codewords; a silent device's do not count as sent."""
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
            {DEVICES: torch.tensor(len(messages))},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Counts, Memory]:
        """Learn the channels, then estimate how many devices sent each codeword, in every block."""
        kept: Kept = announced.kept
        devices, popularity = int(announced.agreed[DEVICES]), kept.quantizer.popularity
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
