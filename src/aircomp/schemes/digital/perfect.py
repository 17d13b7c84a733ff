"""Perfect aggregation, the paper's PA: quantised like the digital link, then counted without error."""

from typing import Any

import torch

from aircomp.channel.base import AtReceiver
from aircomp.decoders.base import Decoded
from aircomp.encode.codebook import count
from aircomp.schemes.base import Broadcast, Memory, Private, Scheme, SchemeContext
from aircomp.schemes.digital.counting import sent_codebook
from aircomp.schemes.digital.link import Digital, counts_of
from aircomp.schemes.digital.received import NoDecoder
from aircomp.schemes.outputs import Counts
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import QuantizedSettings


@scheme(
    "perfect",
    sends="codeword indices, without error",
    needs="none",
    source="bound",
    checked="derived",
    against="counts are those that were sent",
)
class Perfect(Digital):
    """A digital link whose counts arrive as they are."""

    settings_class = QuantizedSettings
    uses_radio = False
    estimates_num_active = False
    side_information = ("the true counts",)

    @classmethod
    def make(cls, settings: QuantizedSettings, context: SchemeContext) -> Scheme:
        """Build the link with the usual codebook, which nobody decodes."""
        sizes = (settings.quantize.num_codewords, settings.codeword_length)
        codebook = sent_codebook("two-bases", *sizes, seed=context.seed, device=context.device)
        return cls(settings, context, codebook, NoDecoder())

    def decode(self, received: Any, broadcast: Broadcast, private: Private, csi: AtReceiver) -> tuple[Counts, Memory]:
        """Take the counts of the codewords that were sent, as they are."""
        counts = count(received.indices, len(received.codebook))
        noise_var = torch.zeros(len(counts), device=counts.device)
        decoded = Decoded(counts, counts.float(), float(len(received.indices)), noise_var)
        return counts_of(decoded, broadcast, private, self.context.include_base_station), {}

    def operations(self, num_slots: int) -> float:
        """There is nothing to decode."""
        return 0.0
