"""The digital link with a receiver for fading: it sends what the digital link sends, and hears all antennas, block by block.

received [antennas, slots, uses] ─► pack: two real uses are a complex one ─► receiver ─► counts of a block
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common.packing import pack, unpack
from aircomp.decoders.base import Decoded, Decoder, run_decoder
from aircomp.decoders.fading.receiver import Receiver, Reception, joined
from aircomp.schemes.base import Broadcast, Memory, Sent
from aircomp.schemes.digital.link import Digital, DigitalPrivate, Wrapper, counts_of, estimate_snr_db
from aircomp.schemes.outputs import Counts


class Radio(Wrapper):
    """A digital link that is heard by a receiver.

    Args:
        link: What is broadcast and sent.
        receiver: Counts from what the antennas heard.
    """

    def __init__(self, link: Digital, receiver: Receiver):
        super().__init__(link)
        self.digital, self.receiver, self.side_information = link, receiver, receiver.side_information

    def broadcast(
        self,
        base_update: Float[Tensor, " params"],
        memory: Memory,
        *,
        rng: torch.Generator,
        slots: Int[Tensor, " slots"] | None = None,
    ) -> tuple[Broadcast, DigitalPrivate]:
        """Broadcast what the link would."""
        return self.digital.broadcast(base_update, memory, rng=rng, slots=slots)

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send what the link would."""
        return self.digital.encode(messages, broadcast, csi, rng=rng)

    def decode(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        broadcast: Broadcast,
        private: DigitalPrivate,
        csi: AtReceiver,
    ) -> tuple[Counts, Memory]:
        """Estimate how many devices sent each codeword, in every block."""
        heard = received if received.is_complex() else pack(received)
        quantizer, (layers, own) = private.quantizer, self.digital.known_of_slots(private)
        seen = Reception(
            heard,
            quantizer.popularity,
            blocks=tuple(csi.slot_blocks(heard.shape[1], self.codebook.shape[1])),
            gain_model=csi.gain_model,
            slot_layers=layers,
            bs_indices=own,
        )
        decoded = joined(self.receiver.receive(seen))
        noise = float(decoded.noise_var.double().mean()) / 2 if len(decoded.noise_var) else 0.0
        snr_db = estimate_snr_db(unpack(heard, 2 * heard.shape[2]).flatten(0, 1), noise, 1)
        output = counts_of(decoded, broadcast, private, self.context.include_base_station)
        return replace(output, diagnostics={"snr_db_hat": snr_db}), {}

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Counts) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        return self.digital.diagnose(sent, broadcast, output)

    def operations(self, num_slots: int) -> float | None:
        """Count while a round is decoded: the decoder is not all that a receiver does."""
        return None


class FirstAntenna:
    """A receiver made of a decoder for gains of one: it hears the first antenna, block after block.

    Args:
        decoder: Counts from real uses.
    """

    side_information: tuple[str, ...] = ()

    def __init__(self, decoder: Decoder):
        self.decoder = decoder

    def receive(self, seen: Reception) -> list[Decoded]:
        """Decode every block of a round on its own if devices may be silent in it, or else the round as one."""
        first = unpack(seen.received[0], 2 * seen.received.shape[2]) / (seen.gain_model.mean or 1.0)
        return [
            self._block(first, seen, rows) for rows in (seen.all_blocks if seen.gain_model.silence else [slice(None)])
        ]

    def _block(self, first: Float[Tensor, "slots uses"], seen: Reception, rows: slice) -> Decoded:
        return run_decoder(
            self.decoder,
            first[rows],
            seen.popularity,
            slot_layers=None if seen.slot_layers is None else seen.slot_layers[rows],
            bs_indices=None if seen.bs_indices is None else seen.bs_indices[rows],
        )
