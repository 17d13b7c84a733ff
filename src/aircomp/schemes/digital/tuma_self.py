r"""TUMA with devices that select themselves (Okumuş et al. 2026): nobody else decides who sends, and nobody learns who did.

    base station: threshold T of the round (announced with the quantisation codebook)
    device:       norm of its message ≥ T ──► sends as in `tuma`;  less ──► silent, and error feedback keeps the message
    base station: counts of all words ──► K̂ devices sent ──► mean of what they sent;  T for the next round

The abstract and the authors' code select by a device's training loss before it trains: a device sends with the probability
of a steep sigmoid of loss less threshold, the threshold follows the number of devices that sent, and the aggregate is the
plain mean of those. A scheme here sees messages and no losses, so the norm of the message takes the place of the loss, and
the sigmoid is a step: who sends does not depend on chance. That mean is of the devices with the largest messages, not of all.
With error feedback a device that stays silent has a larger message in the next round, so everybody's turn comes.

In the first round there is no threshold and all devices send. In the second it is the norm of the base station's own update,
and then

$$T \leftarrow T \exp\big(\gamma\,\min\{\hat K / K_\text{target} - 1,\; 1\}\big),$$

which stands still where the target number of devices sends: for norms with the distribution function $F$ at
$F(T) = 1 - K_\text{target}/K$.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.schemes.base import NUM_DEVICES, Broadcast, Memory, SchemeContext, Sent, remembered
from aircomp.schemes.digital.link import DigitalPrivate
from aircomp.schemes.digital.tuma import TumaLink
from aircomp.schemes.outputs import Counts
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import TumaSelfLinkSettings

THRESHOLD = "threshold"
"""What is announced, and remembered with the number of devices that sent."""
RATE = 0.05
"""γ: how far the logarithm of the threshold moves at most. The authors' threshold of losses moves by .004 for each device too
many, at a target of 100."""
LOWEST = 1e-3
"""Of the threshold, over the norm of the base station's own update: where all devices send and are fewer than the target, a
lower one would change nothing."""


@scheme(
    "tuma-self",
    sends="codewords of its zone, if its update is large",
    needs="any, with fading",
    source="Okumuş et al. 2026",
    checked="derived",
    against="the threshold settles at F(T) = 1 − K_target/K",
)
class TumaSelfLink(TumaLink):
    """TUMA over those devices whose message is at least as long as an announced threshold."""

    settings_class = TumaSelfLinkSettings

    def __init__(self, settings: TumaSelfLinkSettings, context: SchemeContext, words: Float[Tensor, "words uses"]):
        super().__init__(settings, context, words)
        self.target = settings.target

    def broadcast(
        self,
        base_update: Float[Tensor, " params"],
        memory: Memory,
        *,
        rng: torch.Generator,
        slots: Int[Tensor, " slots"] | None = None,
    ) -> tuple[Broadcast, DigitalPrivate]:
        """Announce the threshold beside the codebook."""
        announced, private = super().broadcast(base_update, memory, rng=rng, slots=slots)
        last, num_sent, threshold = remembered(memory, THRESHOLD), remembered(memory, NUM_DEVICES), 0.0
        if last is not None and num_sent is not None:
            threshold = next_threshold(last, num_sent, self.target, float(base_update.norm()))
        values = {**announced.values, THRESHOLD: torch.tensor(threshold)}
        return replace(announced, values=values), private

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send what TUMA would where the message reaches the threshold, and nothing elsewhere."""
        sent = super().encode(messages, broadcast, csi, rng=rng)
        return _silenced(sent, messages.norm(dim=1) >= broadcast.values[THRESHOLD])

    def decode(
        self,
        received: Inexact[Tensor, "antennas slots uses"],
        broadcast: Broadcast,
        private: DigitalPrivate,
        csi: AtReceiver,
    ) -> tuple[Counts, Memory]:
        """Count what was sent, and remember how many sent it."""
        output, memory = super().decode(received, broadcast, private, csi)
        num_sent = torch.tensor(output.num_active_hat, dtype=torch.float64)
        return output, {**memory, THRESHOLD: broadcast.values[THRESHOLD].double(), NUM_DEVICES: num_sent}


def next_threshold(last: float, num_sent: float, target: int, own: float) -> float:
    """Return the threshold after a round in which so many devices sent.

    Args:
        last: The threshold of that round; zero: it had none.
        num_sent: How many devices sent in it.
        target: How many shall send.
        own: The norm of the base station's own update, where the search begins.
    """
    if last == 0:
        return own
    return max(last * math.exp(RATE * min(num_sent / target - 1, 1.0)), LOWEST * own)


def _silenced(sent: Sent, sends: Bool[Tensor, " devices"]) -> Sent:
    """Return what is sent where some devices send nothing: their codeword is one of zeros."""
    signal: Any = sent.signal  # Codewords
    silent = len(signal.codebook)
    delivered = sends[:, None].expand(-1, signal.indices.shape[1])
    return replace(
        sent,
        signal=replace(
            signal,
            indices=signal.indices.where(sends[:, None], silent),
            codebook=torch.nn.functional.pad(signal.codebook, (0, 0, 0, 1)),
        ),
        reconstruction=sent.reconstruction * sends[:, None],
        delivered=delivered if sent.delivered is None else delivered & sent.delivered.to(delivered.device),
        capped=True,
    )
