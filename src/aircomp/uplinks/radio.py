"""The digital link with a receiver for fading: it sends what the digital link sends, and hears all antennas, block by block.

received [antennas, slots, uses] ─► pack: two real uses are a complex one ─► mean of copies ─► receiver ─► counts of a block
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Complex, Float, Inexact
from torch import Tensor

from aircomp.channel.base import AtReceiver
from aircomp.common.packing import pack, unpack
from aircomp.decode.base import Decoded, Decoder
from aircomp.decode.copies import estimate_snr_db
from aircomp.decode.receiver import Receiver, Reception
from aircomp.decode.side import visible_side_information
from aircomp.encode.schedule import COPIES
from aircomp.errors import ConfigError
from aircomp.uplinks.base import Announced, Memory, Relay, Sent
from aircomp.uplinks.digital import SNR_DB, DigitalUplink, Kept, compare, counts_of
from aircomp.uplinks.outputs import Counts


class RadioUplink(Relay):
    """A digital link that is heard by a receiver.

    Args:
        link: What is announced and sent.
        receiver: Counts from what the antennas heard.

    Raises:
        ConfigError: If copies of a slot would lie in two coherence blocks, whose gains differ.
    """

    offers = Counts

    def __init__(self, link: DigitalUplink, receiver: Receiver):
        super().__init__(link)
        repeat, uses = link.settings.repeat, link.codebook.shape[1]
        copies = max(COPIES) if repeat == "auto" else repeat
        if copies > 1 and link.context.block_uses % (copies * uses):
            raise ConfigError(
                f"uplink.repeat = {repeat}: up to {copies} copies of {uses} channel uses do not fit evenly into a coherence "
                f"block of {link.context.block_uses}; choose channel.block_slots so that they do, or repeat = 1"
            )
        self.receiver, self.name = receiver, link.name
        self.send, self.side_information = link.send, receiver.side_information

    def decode(
        self, received: Inexact[Tensor, "antennas sent uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Counts, Memory]:
        """Estimate how many devices sent each codeword, in every block."""
        kept: Kept = announced.kept
        heard = _combined(received, kept.repeat)
        side, quantizer = self.link.settings.side_information, kept.quantizer
        layers, own = visible_side_information(side, kept.slot_layers, quantizer.base_indices)
        blocks = tuple(csi.slot_blocks(heard.shape[1], self.link.codebook.shape[1] * kept.repeat))
        seen = Reception(
            heard,
            quantizer.popularity,
            blocks=blocks,
            gain_model=csi.gain_model,
            slot_layers=layers,
            bs_indices=own,
        )
        decoded = joined(self.receiver.receive(seen))
        noise = float(decoded.noise_var.double().mean()) / 2 if len(decoded.noise_var) else 0.0
        snr_db = estimate_snr_db(unpack(heard, 2 * heard.shape[2]).flatten(0, 1), noise, kept.repeat)
        output = counts_of(decoded, announced, self.link.context.include_base_station)
        return replace(output, diagnostics={"snr_db_hat": snr_db}), {SNR_DB: torch.tensor(snr_db, dtype=torch.float64)}

    def diagnose(self, sent: Sent, announced: Announced, output: Any) -> dict[str, float]:
        """Compare the true counts with the decoded ones."""
        return compare(sent, announced, output)


def _combined(received: Inexact[Tensor, "antennas sent uses"], repeat: int) -> Complex[Tensor, "antennas asked pairs"]:
    """Return complex uses, the copies of each slot averaged: in one block they have one gain."""
    pairs = received if received.is_complex() else pack(received)
    return pairs if repeat == 1 else pairs.unflatten(1, (-1, repeat)).mean(dim=2)


def joined(blocks: list[Decoded]) -> Decoded:
    """Put the blocks of a round together.

    The number of devices is the mean over slots. Soft counts of every block are scaled to that over the blocks in which
    somebody spoke, because their sum says how many devices spoke in the block, not how much the block weighs; the integers
    stay as they are.
    """
    if len(blocks) == 1:
        return blocks[0]
    slots = sum(len(block.mean) for block in blocks)
    devices = sum(block.num_active_hat * len(block.mean) for block in blocks) / max(slots, 1)
    spoken = sum(len(block.mean) for block in blocks if block.num_active_hat >= 0.5)
    each = devices * (slots / max(spoken, 1))
    scaled = [block.mean * (each / block.num_active_hat if block.num_active_hat > 0 else 0) for block in blocks]
    return Decoded(
        counts=torch.cat([block.counts for block in blocks]),
        mean=torch.cat(scaled),
        num_active_hat=devices,
        noise_var=torch.cat([block.noise_var for block in blocks]),
    )


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
        return self.decoder.decode(
            first[rows],
            seen.popularity,
            slot_layers=None if seen.slot_layers is None else seen.slot_layers[rows],
            bs_indices=None if seen.bs_indices is None else seen.bs_indices[rows],
        )
