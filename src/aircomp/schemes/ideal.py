"""Ideal aggregation: every update arrives exactly. The upper bound that every scheme is measured against."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Symbols
from aircomp.schemes.base import Broadcast, Memory, Private, Scheme, SchemeContext, Sent
from aircomp.schemes.outputs import Vectors
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import PlainSettings, SchemeSettings


@scheme(
    "ideal",
    sends="its update, exactly",
    needs="none",
    source="bound",
    checked="derived",
    against="what arrives is what was sent",
)
class Ideal(Scheme):
    """Exact, unquantised updates; nothing is sent over a radio, so nothing is charged and all is declared."""

    settings_class = PlainSettings
    offers = Vectors
    uses_radio = False
    reads_base = False
    estimates_num_active = False
    side_information = ("every update, exactly",)

    def __init__(self, settings: SchemeSettings | None = None, context: SchemeContext | None = None):
        self.context = context or SchemeContext()

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Announce nothing; keep the base station's own update for the aggregate."""
        return Broadcast(base_update.numel(), 0), base_update

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Hand the messages over as they are."""
        return Sent(Symbols(messages[:, None], power=0.0), messages)

    def decode(
        self, received: Symbols, broadcast: Broadcast, private: Private, csi: AtReceiver
    ) -> tuple[Vectors, Memory]:
        """Take the vectors as they are."""
        vectors = received.values[:, 0]
        number = float(len(vectors))
        if self.context.include_base_station:
            vectors = torch.cat([vectors, private[None].to(vectors)])
        return Vectors(vectors=vectors, num_active_hat=number), {}

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Any) -> dict[str, float]:
        """There is nothing to measure: what arrives is what was sent."""
        return {"update_nmse": 0.0}

    def operations(self, num_slots: int) -> float:
        """There is nothing to decode."""
        return 0.0
