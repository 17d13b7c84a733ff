"""Perfect aggregation, the paper's PA: quantised like the digital link, then counted without error."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.decode.base import Decoded
from aircomp.encode.codebook import count
from aircomp.uplinks.base import Cost, Encoded, Reception
from aircomp.uplinks.digital import Announced, DigitalUplink, compare, receive


class PerfectUplink:
    """A digital link whose channel reveals the true counts; its cost is that of the link it stands for."""

    name = "perfect"
    estimates_num_active = False

    def __init__(self, link: DigitalUplink):
        self.link = link

    def broadcast(
        self, base_update: Float[Tensor, " params"], *, rng: torch.Generator, snr_db: float | None = None
    ) -> Announced:
        """Announce what the link would."""
        return self.link.broadcast(base_update, rng=rng, snr_db=snr_db)

    def encode(self, messages: Float[Tensor, "devices params"], announced: Announced) -> Encoded:
        """Quantise as the link would."""
        return self.link.encode(messages, announced)

    def transmit(self, encoded: Encoded, announced: Announced, *, rng: torch.Generator) -> Any:
        """Deliver the counts themselves."""
        return count(encoded.payload, len(announced.quantizer.codebook))

    def decode(self, received: Any, announced: Announced) -> Reception:
        """Take the counts as they are."""
        num_active = float(received[0].sum())
        noise_var = torch.zeros(len(received), device=received.device)
        decoded = Decoded(received, received.float(), num_active, noise_var)
        return receive(decoded, announced, self.link.include_base_station)

    def cost(self, num_params: int, num_active: int) -> Cost:
        """Return the link's cost, with the genie declared."""
        cost = self.link.cost(num_params, num_active)
        return Cost(cost.channel_uses, cost.energy_per_device, ("the true counts",), cost.num_slots)

    def diagnose(self, encoded: Encoded, announced: Announced, reception: Reception) -> dict[str, float]:
        """Compare as the link does; every error is zero."""
        return compare(encoded, announced, reception)
