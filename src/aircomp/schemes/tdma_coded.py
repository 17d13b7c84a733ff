r"""Turns with a real code: `tdma-vq` is assumed to reach capacity, this scheme has a convolutional code that makes errors.

    devices:      codeword indices [K_a, J] ──► blocks of 32 ──► convolutional code, ±1 ──► the device's slots
    base station: slots of each device ──► Viterbi ──► blocks whose parity is right ──► every device's update

The rate is fixed: half a bit per channel use. If the slots of a device are too few for all fragments, it sends the first
ones of an order that is drawn from a seed. A block with a wrong parity word is left out. Nobody tells the device, so its
error memory counts the block as sent.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Symbols
from aircomp.common import rng as rngs
from aircomp.decoders.viterbi import viterbi
from aircomp.encode.convolutional import GENERATORS, MEMORY, PARITY, encode, num_symbols, parity, taps
from aircomp.encode.turns import take_turns
from aircomp.errors import ConfigError
from aircomp.quantize.codebook import build, lookup, nearest
from aircomp.quantize.fragment import join, num_slots, split
from aircomp.schemes.base import (
    Broadcast,
    Memory,
    Private,
    Scheme,
    SchemeContext,
    Sent,
    error_of_mean,
    in_phase,
    new_seed,
)
from aircomp.schemes.outputs import Vectors
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import TdmaCodedSettings

BLOCK = 32
"""How many indices a block has."""


@dataclass(frozen=True)
class Turn:
    """What one device sends in its own slots."""

    slots: Int[Tensor, " own"]
    blocks: int
    """How many blocks fit into the slots."""
    fragments: Int[Tensor, " sent"]
    """The fragments in these blocks."""


@scheme(
    "tdma-coded",
    sends="codeword indices, in turns, with a convolutional code",
    needs="in phase",
    source="Viterbi 1967",
    checked="derived",
    against="bits err as this code is known to",
)
class TdmaCoded(Scheme):
    """Vector-quantised updates in turns, with a convolutional code.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = TdmaCodedSettings
    offers = Vectors
    estimates_num_active = False
    side_information = ("which device has which turn",)

    def __init__(self, settings: TdmaCodedSettings, context: SchemeContext | None = None):
        self.quantize, self.uses, self.context = settings.quantize, settings.codeword_length, context or SchemeContext()
        self.index_bits = (self.quantize.num_codewords - 1).bit_length()
        self.block_bits = BLOCK * self.index_bits

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce the quantisation codebook, and the seed of the order of fragments."""
        own = split(base_update, self.quantize.fragment_length)
        codebook = build(own, self.quantize, rng=rng).codebook
        values = {"codebook": codebook, "seed": new_seed(rng)}
        return Broadcast(base_update.numel(), len(own) * self.uses, values), base_update

    def turns(self, num_devices: int, broadcast: Broadcast) -> list[Turn]:
        """Return every device's slots and the fragments that it sends in them."""
        slots = broadcast.num_uses // self.uses
        order = torch.randperm(slots, generator=rngs.generator(int(broadcast.values["seed"]), "turns"))
        found = []
        for device in range(num_devices):
            own = torch.arange(slots)[device::num_devices]
            blocks = min(len(own) * self.uses // num_symbols(self.block_bits), -(-slots // BLOCK))
            found.append(Turn(own, blocks, order[: blocks * BLOCK]))
        if not all(turn.blocks for turn in found):
            raise ConfigError(
                f"tdma-coded needs {num_symbols(self.block_bits)} channel uses for a block, but the turn of a device has "
                f"{len(found[-1].slots) * self.uses}; use fewer devices, a larger model or tdma-vq"
            )
        return found

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Quantise, encode and send in turns."""
        codebook, slots = broadcast.values["codebook"], broadcast.num_uses // self.uses
        fragments = split(messages, codebook.shape[1])
        energies, speaking = take_turns(len(messages), slots, float(slots)), csi.speaking(slots, self.uses)
        signal = messages.new_zeros(len(messages), slots, self.uses)
        arrived = torch.zeros_like(fragments)
        for device, turn in enumerate(self.turns(len(messages), broadcast)):
            chosen = nearest(fragments[device, turn.fragments], codebook)
            symbols = encode(self._bits(chosen, turn.blocks)).flatten()
            stream = torch.nn.functional.pad(symbols, (0, len(turn.slots) * self.uses - len(symbols)))
            scale = float(energies[device].sum() / max(len(symbols), 1)) ** 0.5
            signal[device, turn.slots] = (scale * stream).reshape(-1, self.uses).to(signal)
            heard = self._spoken(turn, None if speaking is None else speaking[device])[: len(turn.fragments)]
            arrived[device, turn.fragments] = lookup(chosen, codebook) * heard.to(arrived)[:, None]
        agreed = {"devices": torch.tensor(len(messages))}
        return Sent(Symbols(signal, 1 / self.uses), join(arrived, broadcast.num_params), speaking, agreed=agreed)

    def _bits(self, indices: Int[Tensor, " sent"], blocks: int) -> Bool[Tensor, "blocks bits"]:
        """Return the indices as blocks of bits, the last one filled with zeros."""
        padded = torch.nn.functional.pad(indices, (0, blocks * BLOCK - len(indices)))
        places = torch.arange(self.index_bits, device=indices.device)
        return (padded[:, None] >> places & 1).bool().reshape(blocks, -1)

    def _spoken(self, turn: Turn, speaking: Bool[Tensor, " slots"] | None) -> Bool[Tensor, " indices"]:
        """Return which indices were sent: those of blocks in which the device was never silent."""
        if speaking is None:
            return torch.ones(turn.blocks * BLOCK, dtype=torch.bool)
        uses = speaking[turn.slots].repeat_interleave(self.uses)[: turn.blocks * num_symbols(self.block_bits)]
        return uses.reshape(turn.blocks, -1).all(dim=1).cpu().repeat_interleave(BLOCK)

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Vectors, Memory]:
        """Decode every device's blocks, and leave out those whose parity is wrong."""
        heard = in_phase(received)
        number = int(broadcast.agreed["devices"])
        vectors, lost, all_blocks = [], 0, 0
        for turn in self.turns(number, broadcast):
            size = num_symbols(self.block_bits)
            stream = heard[turn.slots.to(heard.device)].flatten()[: turn.blocks * size]
            bits = viterbi(stream.reshape(turn.blocks, -1, len(GENERATORS)), taps())[:, :-MEMORY]
            right = (parity(bits[:, :-PARITY]) == bits[:, -PARITY:]).all(dim=1)
            lost, all_blocks = lost + int((~right).sum()), all_blocks + turn.blocks
            vectors.append(self._vector(bits[:, :-PARITY], right, turn, broadcast))
        known = [vector for vector in vectors if vector.any()] or [torch.zeros_like(private)]
        if self.context.include_base_station:
            known.append(private.to(known[0]))
        told = {"block_error_rate": lost / max(all_blocks, 1)}
        return Vectors(vectors=torch.stack(known), num_active_hat=float(number), diagnostics=told), {}

    def _vector(
        self, bits: Bool[Tensor, "blocks bits"], right: Bool[Tensor, " blocks"], turn: Turn, broadcast: Broadcast
    ) -> Float[Tensor, " params"]:
        """Return a device's update, zero where nothing arrived."""
        codebook = broadcast.values["codebook"]
        weights = 2 ** torch.arange(self.index_bits, device=bits.device)
        indices = (bits.reshape(-1, self.index_bits) * weights).sum(dim=1)[: len(turn.fragments)]
        kept = right.repeat_interleave(BLOCK)[: len(turn.fragments), None].to(codebook)
        fragments = torch.zeros(num_slots(broadcast.num_params, codebook.shape[1]), codebook.shape[1]).to(codebook)
        fragments[turn.fragments] = lookup(indices.clamp(max=len(codebook) - 1), codebook) * kept
        return join(fragments, broadcast.num_params)

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Vectors) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        return error_of_mean(sent, output.vectors.mean(dim=0))
