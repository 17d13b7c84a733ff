"""Wrappers around the digital link whose link sends some slots of the update; error feedback keeps the others.

update [J fragments] ──► the slots that are sent ──► link ──► counts of these slots ──► zero in all others
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.quantize.fragment import join, num_slots, put_slots, split, take_slots
from aircomp.schemes.base import Broadcast, Memory, Private, Sent
from aircomp.schemes.digital.link import Wrapper
from aircomp.schemes.outputs import Counts


class SomeSlots(Wrapper):
    """A wrapper whose link sends some slots of the update."""

    @property
    def length(self) -> int:
        """Parameters of a slot."""
        return self.settings.quantize.fragment_length

    def announce(
        self,
        base_update: Float[Tensor, " params"],
        memory: Memory,
        kept: Int[Tensor, " kept"] | None,
        slots: Int[Tensor, " slots"] | None,
        rng: torch.Generator,
    ) -> tuple[Broadcast, Private]:
        """Let the link announce a round of some slots.

        Args:
            base_update: The base station's own update.
            memory: What the scheme remembers.
            kept: The slots of this update that are sent, ascending; None: all.
            slots: The slots of the whole update that this one consists of; None: it is whole.
            rng: Where every random number of this call comes from.
        """
        if kept is None:
            return self.link.broadcast(base_update, memory, rng=rng, slots=slots)
        part = take_slots(split(base_update, self.length), kept).flatten()
        return self.link.broadcast(part, memory, rng=rng, slots=kept if slots is None else slots[kept])

    def part(
        self, messages: Float[Tensor, "devices params"], kept: Int[Tensor, " kept"] | None
    ) -> Float[Tensor, "devices part"]:
        """Return what devices say in the slots that are sent."""
        return messages if kept is None else take_slots(split(messages, self.length), kept).flatten(1)

    def inner(self, broadcast: Broadcast, kept: Int[Tensor, " kept"] | None, num_uses: int) -> Broadcast:
        """Return the broadcast as the link made it."""
        size = broadcast.num_params if kept is None else len(kept) * self.length
        return replace(broadcast, num_params=size, num_uses=num_uses)

    def whole(self, sent: Sent, broadcast: Broadcast, kept: Int[Tensor, " kept"] | None) -> Sent:
        """Return what was sent with updates as long as the model: zero where nothing was."""
        if kept is None:
            return sent
        slots = num_slots(broadcast.num_params, self.length)
        parts = put_slots(split(sent.reconstruction, self.length), kept, slots)
        return replace(sent, reconstruction=join(parts, broadcast.num_params))

    def placed(self, output: Counts, broadcast: Broadcast, kept: Int[Tensor, " kept"] | None) -> Counts:
        """Return the counts with their places in the update."""
        if kept is None:
            return replace(output, num_params=broadcast.num_params)
        asked = kept if output.asked is None else kept[output.asked]
        return replace(output, num_params=broadcast.num_params, asked=asked)
