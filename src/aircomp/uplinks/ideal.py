"""The ideal uplink: every update arrives exactly. The upper bound that every scheme is measured against."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.uplinks.base import Cost, Encoded, Reception


class IdealUplink:
    """Exact, unquantised updates; nothing is sent over a radio, so nothing is charged and all is declared."""

    name = "ideal"
    estimates_num_active = False

    def __init__(self, *, include_base_station: bool = False):
        self.include_base_station = include_base_station

    def broadcast(self, base_update: Float[Tensor, " params"], *, rng: torch.Generator) -> Any:
        """Announce nothing; keep the base station's own update for the aggregate."""
        return base_update

    def encode(self, messages: Float[Tensor, "devices params"], announced: Any) -> Encoded:
        """Send the messages as they are."""
        return Encoded(messages, messages, torch.ones(len(messages), dtype=torch.bool))

    def transmit(self, encoded: Encoded, announced: Any, *, rng: torch.Generator) -> Any:
        """Deliver every message untouched."""
        return encoded.payload

    def decode(self, received: Any, announced: Any) -> Reception:
        """Return the vectors: one slot, one codeword a device, each counted once."""
        vectors = received
        if self.include_base_station:
            vectors = torch.cat([vectors, announced[None].to(vectors)])
        return Reception(
            num_params=vectors.shape[1],
            num_active_hat=float(len(received)),
            counts=torch.ones(1, len(vectors), dtype=torch.int64, device=vectors.device),
            codewords=vectors,
        )

    def cost(self, num_params: int, num_active: int) -> Cost:
        """Return zero air and the declaration that everything went beside it."""
        return Cost(0, 0.0, ("every update, exactly",))

    def diagnose(self, encoded: Encoded, announced: Any, reception: Reception) -> dict[str, float]:
        """There is nothing to measure: what arrives is what was sent."""
        return {"update_nmse": 0.0}
