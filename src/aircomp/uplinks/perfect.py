"""Perfect aggregation, the paper's PA: quantised like the digital link, then counted without error."""

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.decode.base import Decoded
from aircomp.encode.codebook import count
from aircomp.encode.signal import Codewords
from aircomp.uplinks.base import Announced, Memory, Sent
from aircomp.uplinks.digital import DigitalUplink, compare, counts_of
from aircomp.uplinks.outputs import Counts


class PerfectUplink:
    """A digital link whose counts arrive as they are; what it sends is that of the link it stands for."""

    name = "perfect"
    offers = Counts
    uses_radio = False
    estimates_num_active = False
    side_information = ("the true counts",)

    def __init__(self, link: DigitalUplink):
        self.link = link
        self.send = link.send

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce what the link would."""
        return self.link.broadcast(base_update, memory, rng=rng)

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Quantise as the link would."""
        return self.link.encode(messages, announced, csi, rng=rng)

    def decode(self, received: Codewords, announced: Announced, csi: AtReceiver) -> tuple[Counts, Memory]:
        """Take the counts as they are."""
        counts = count(received.indices, len(received.codebook))
        noise_var = torch.zeros(len(counts), device=counts.device)
        decoded = Decoded(counts, counts.float(), float(len(received.indices)), noise_var)
        return counts_of(decoded, announced, self.link.context.include_base_station), {}

    def diagnose(self, sent: Sent, announced: Announced, output: Counts) -> dict[str, float]:
        """Compare as the link does; every error is zero."""
        return compare(sent, announced, output)
