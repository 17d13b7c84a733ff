"""The ideal uplink: every update arrives exactly. The upper bound that every scheme is measured against."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Symbols
from aircomp.uplinks.base import Announced, Memory, Sent, UplinkContext
from aircomp.uplinks.outputs import Vectors


class IdealUplink:
    """Exact, unquantised updates; nothing is sent over a radio, so nothing is charged and all is declared."""

    name = "ideal"
    offers = Vectors
    uses_radio = False
    estimates_num_active = False
    side_information = ("every update, exactly",)

    def __init__(self, context: UplinkContext | None = None):
        self.context = context or UplinkContext()

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce nothing; keep the base station's own update for the aggregate."""
        return Announced(base_update.numel(), 0, kept=base_update)

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Hand the messages over as they are."""
        return Sent(Symbols(messages[:, None], power=0.0), messages)

    def decode(self, received: Symbols, announced: Announced, csi: AtReceiver) -> tuple[Vectors, Memory]:
        """Take the vectors as they are."""
        vectors = received.values[:, 0]
        number = float(len(vectors))
        if self.context.include_base_station:
            vectors = torch.cat([vectors, announced.kept[None].to(vectors)])
        return Vectors(vectors=vectors, num_active_hat=number), {}

    def diagnose(self, sent: Sent, announced: Announced, output: Any) -> dict[str, float]:
        """There is nothing to measure: what arrives is what was sent."""
        return {"update_nmse": 0.0}
