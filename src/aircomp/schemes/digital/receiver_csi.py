"""Receiver CSI: every device has a pilot of its own, from which the base station learns its channel.

pilots ──► every device's gain on every antenna ──► which codeword did each device send ──► counts
"""

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtReceiver
from aircomp.common.packing import pack, unpack
from aircomp.decoders.base import Decoded
from aircomp.decoders.fading.learnt_channels import LearntChannels, learn_channels
from aircomp.decoders.fading.receiver import joined
from aircomp.encode.own_pilots import WithOwnPilots, own_sequences
from aircomp.encode.signal import Codewords
from aircomp.encode.spread import Spread
from aircomp.errors import ConfigError
from aircomp.schemes.base import Scheme, SchemeContext
from aircomp.schemes.digital.block_pilots import BlockPiloted, BlockPilots
from aircomp.schemes.digital.counting import codebook_of
from aircomp.schemes.digital.link import Digital
from aircomp.schemes.digital.received import NoDecoder, Received
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import ReceiverCsiLinkSettings


@dataclass(frozen=True)
class OwnPilots(BlockPilots):
    """Orthogonal sequences, one for each device."""

    passes: int = 4
    """How often codewords that were found improve the channels."""

    @property
    def sequences(self) -> Complex[Tensor, "sequences pairs"]:
        """What devices send in the pilots of a block: energy one in every slot."""
        return own_sequences(self.pilots * self.uses // 2, float(self.pilots))

    def check_devices(self, devices: int) -> None:
        """Refuse more devices than sequences.

        Raises:
            ConfigError: Saying how many pilots they need.
        """
        room = len(self.sequences) - 1  # what nobody sends tells the noise
        if devices > room:
            needed = -(-2 * (devices + 1) // self.uses)
            raise ConfigError(
                f"{devices} devices need a pilot each, but uplink.decoder.pilots = {self.pilots} has room for "
                f"{room} in a coherence block; expected at least {needed}"
            )

    def send(self, indices: Int[Tensor, "devices data"], codebook: Float[Tensor, "codewords uses"]) -> WithOwnPilots:
        """Put the pilots before the data of every block."""
        self.check_devices(len(indices))
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
        pilots, data = self.apart(received)
        learnt = learn_channels(pilots, self.sequences, num_devices, silence=csi.gain_model.silence)
        return joined(LearntChannels(pack(codebook), self.passes).receive(learnt, data, popularity))


@scheme(
    "receiver-csi",
    sends="codewords of a shared codebook, and a pilot of its own",
    needs="any",
    source="this package",
    ours=True,
)
class ReceiverCsi(Digital):
    """The digital link with a pilot for each device."""

    settings_class = ReceiverCsiLinkSettings
    side_information = ("which devices send, so that each has a pilot of its own",)

    @classmethod
    def make(cls, settings: ReceiverCsiLinkSettings, context: SchemeContext) -> Scheme:
        """Build the link with its pilots."""
        codebook, decoder = codebook_of(Received.designed_codebook, settings, context), settings.decoder

        def plan(slots: int) -> BlockPilots:
            return OwnPilots(slots, codebook.shape[1], context.block_uses, decoder.pilots, decoder.passes)

        return BlockPiloted(cls(settings, context, codebook, NoDecoder()), plan)
