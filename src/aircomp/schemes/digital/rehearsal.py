"""A rehearsal: the base station draws slots as it expects them, and decodes them as it decodes the real ones.

It knows what it drew, so it sees what its own decoder does to an aggregate. It needs no truth for that:

    soft counts of the round ──► rates of some slots ──► drawn counts ──► codewords, noise ──► decoder ──► soft counts
    estimated devices, noise ──┘                              └────────────────── compared ──────────────────┘
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.decoders.base import Decoded, Decoder, run_decoder
from aircomp.decoders.side import slot_rates
from aircomp.encode.codebook import count

MOST_SLOTS = 4096
"""Slots of a rehearsal, which bound its time."""
LEAST_RATE = 1e-9
"""Of a codeword that no slot chose: shares need a logarithm."""


@dataclass(frozen=True)
class Rehearsal:
    """What the base station knows of a round that it has decoded."""

    decoder: Decoder
    rows: Float[Tensor, "codewords uses"]
    """The random-access codebook of the round."""
    popularity: Float[Tensor, " codewords"]
    quant_codebook: Float[Tensor, "codewords fragment"]
    decoded: Decoded
    slot_layers: Int[Tensor, " slots"] | None
    """Layer and own codeword of each slot, None where the decoder does not see them."""
    bs_indices: Int[Tensor, " slots"] | None

    def rehearse(
        self, rng: torch.Generator
    ) -> tuple[Float[Tensor, "some codewords"], Float[Tensor, "some codewords"]] | None:
        """Return counts that were drawn and the soft counts that were decoded of them; None if nobody sent."""
        devices, soft = round(self.decoded.num_active_hat), self.decoded.mean
        if devices < 1 or not soft.any():
            return None
        rates = slot_rates(soft, soft.mean(0).clamp(min=LEAST_RATE), self.slot_layers, self.bs_indices)
        some = self._some(rates)
        drawn = torch.multinomial(rates[some].cpu(), devices, replacement=True, generator=rng)
        counts = count(drawn.T.to(soft.device), len(self.rows)).to(self.rows)
        noise_var = self.decoded.noise_var[some].to(self.rows)
        noise = torch.randn(len(some), self.rows.shape[1], generator=rng, device=rng.device).to(self.rows)
        again = run_decoder(
            self.decoder,
            counts @ self.rows + noise_var.sqrt()[:, None] * noise,
            self.popularity,
            num_active=self.decoded.num_active_hat,
            noise_var=noise_var,
            slot_layers=None if self.slot_layers is None else self.slot_layers[some],
            bs_indices=None if self.bs_indices is None else self.bs_indices[some],
            quant_codebook=self.quant_codebook,
        )
        return counts, again.mean

    def _some(self, rates: Float[Tensor, "slots codewords"]) -> Int[Tensor, " some"]:
        """Choose slots: half of them where most energy is expected, which decides, the others evenly spaced."""
        slots = torch.arange(len(rates), device=rates.device)
        if len(rates) <= MOST_SLOTS:
            return slots
        energy = rates @ self.quant_codebook.to(rates).square().sum(1)
        strong = energy.topk(MOST_SLOTS // 2).indices
        return torch.cat([strong, slots[:: -(-2 * len(slots) // MOST_SLOTS)]]).unique()
