"""Error feedback: what a transmission left out is added to the device's next message (Sec. II-B).

    update Δw ──► add_memory ──► message s ──► quantise, transmit ──► reconstruction Q(s)
                      ▲                                                     │
                  memory e ◄──────────── remember: e = s − Q(s) ◄───────────┘

The memory is a value that the caller keeps for each device between its rounds; `None` is a device without one.
"""

from jaxtyping import Float
from torch import Tensor

from aircomp.device.settings import ClippedFeedback, DecayedFeedback, FeedbackSettings


def add_memory(
    update: Float[Tensor, " params"], memory: Float[Tensor, " params"] | None, settings: FeedbackSettings
) -> Float[Tensor, " params"]:
    r"""Return the message that a device transmits: $s = \Delta w + e$, or the update alone if nothing is remembered."""
    if memory is None or settings.kind == "off":
        return update
    if isinstance(settings, DecayedFeedback):
        return update + settings.decay * memory
    return update + memory


def remember(
    message: Float[Tensor, " params"],
    reconstruction: Float[Tensor, " params"],
    settings: FeedbackSettings,
    *,
    update_norm: float,
) -> Float[Tensor, " params"] | None:
    r"""Return the device's memory after its transmission: $e = s - Q(s)$.

    A part that the device did not send has reconstruction zero, so the device keeps it whole. With feedback "off"
    that part is lost.

    The clip acts here, when the memory is stored, so what is stored, measured and saved is what will be added; it
    refers to the update of this round, the next one being unknown. A zero update therefore clears a clipped memory.

    Args:
        message: What the device meant to send (with the older memory in it).
        reconstruction: What its transmission stands for, zero where it was silent.
        settings: The kind of memory.
        update_norm: Euclidean norm of this round's update, before the memory was added.
    """
    if settings.kind == "off":
        return None
    memory = message - reconstruction
    if isinstance(settings, ClippedFeedback):
        norm, limit = float(memory.norm()), settings.max_ratio * update_norm
        if norm > limit:
            memory = memory * (limit / norm)
    return memory


def feedback_ratio(memory: Float[Tensor, " params"] | None, update_norm: float) -> float:
    r"""Return $\|e\| / \|\Delta w\|$, the paper's sign of trouble when above five; 0 without a memory."""
    if memory is None:
        return 0.0
    # The floor makes a zero update's ratio huge instead of infinite, which the metrics file cannot hold.
    return float(memory.norm()) / max(update_norm, 1e-12)
