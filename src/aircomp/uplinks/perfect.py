"""Perfect aggregation, the paper's PA: quantised like the digital link, then counted without error."""

import torch

from aircomp.channel.base import AtReceiver
from aircomp.decode.base import Decoded
from aircomp.encode.codebook import count
from aircomp.encode.signal import Codewords
from aircomp.uplinks.base import Announced, Memory, Relay, Sent
from aircomp.uplinks.digital import DigitalUplink, compare, counts_of
from aircomp.uplinks.outputs import Counts


class PerfectUplink(Relay):
    """A digital link whose counts arrive as they are; what it sends is that of the link it stands for."""

    name = "perfect"
    offers = Counts
    uses_radio = False
    estimates_num_active = False
    side_information = ("the true counts",)

    def __init__(self, link: DigitalUplink):
        super().__init__(link)
        self.send = link.send

    def decode(self, received: Codewords, announced: Announced, csi: AtReceiver) -> tuple[Counts, Memory]:
        """Take the counts as they are."""
        counts = count(received.indices, len(received.codebook))
        noise_var = torch.zeros(len(counts), device=counts.device)
        decoded = Decoded(counts, counts.float(), float(len(received.indices)), noise_var)
        return counts_of(decoded, announced, self.link.context.include_base_station), {}

    def diagnose(self, sent: Sent, announced: Announced, output: Counts) -> dict[str, float]:
        """Compare as the link does; every error is zero."""
        return compare(sent, announced, output)
