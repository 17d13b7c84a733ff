"""Drawn rounds of the digital link behind fading: some devices choose popular codewords, a receiver counts.

drawn choices ──► codewords, pilots ──► gains, noise ──► receiver ──► counts
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.channel.base import facts_of, make_channel
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.common import rng as rngs
from aircomp.common.settings import Settings
from aircomp.decoders.base import Decoded
from aircomp.measure.harness import Trial, send
from aircomp.measure.metrics import count_accuracy
from aircomp.schemes.digital.block_pilots import BlockPilots
from aircomp.schemes.digital.receivers import make_receiver, receiver_codebook

NUM_CODEWORDS, CODEWORD_LENGTH = 128, 64


@dataclass(frozen=True)
class FadedRound:
    """A round behind fading, and what the receiver counted."""

    sent: Trial
    decoded: Decoded

    @property
    def accuracy(self) -> float:
        """Of the counts."""
        return count_accuracy(self.sent.counts, self.decoded.counts)


def drawn_choices(num_codewords: int, *, num_active: int, num_slots: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw indices [devices, slots] of devices that choose popular codewords more often, and the popularity."""
    popularity = 1 / torch.arange(1.0, num_codewords + 1)
    rng = rngs.generator(seed, "explained round")
    indices = torch.multinomial(popularity.expand(num_active, -1), num_slots, replacement=True, generator=rng)
    return indices, popularity / popularity.sum()


def hear_round(
    receiver: str,
    channel: ChannelSettings,
    power: PowerSettings,
    *,
    num_active: int,
    num_slots: int,
    seed: int,
    told: float | None = None,
) -> FadedRound:
    """Send a round of popular and rare codewords through a fading channel, and let a receiver count.

    Args:
        receiver: One of `receiver_names()`.
        channel: Its gains and noise.
        power: What devices do about them.
        num_active: Devices.
        num_slots: Of the round.
        seed: Everything random derives from it.
        told: The number of devices, if the receiver need not estimate it.

    Raises:
        ConfigError: If the receiver does not fit the channel.
    """
    chosen, popularity = drawn_choices(NUM_CODEWORDS, num_active=num_active, num_slots=num_slots, seed=seed)
    return hear_choices(receiver, channel, power, chosen, popularity, seed=seed, told=told)


def hear_choices(
    receiver: str,
    channel: ChannelSettings,
    power: PowerSettings,
    chosen: Int[Tensor, "devices slots"],
    popularity: Float[Tensor, " codewords"],
    *,
    seed: int,
    told: float | None = None,
    settings: Settings | None = None,
) -> FadedRound:
    """Send what devices chose through a fading channel, and let a receiver count.

    Args:
        receiver: One of `receiver_names()`.
        channel: Its gains and noise.
        power: What devices do about them.
        chosen: Among 128 codewords.
        popularity: How often each is chosen, as the base station expects.
        seed: Gains, noise and drawn codewords derive from it.
        told: The number of devices, if the receiver need not estimate it.
        settings: Of the receiver; the usual ones if None.

    Raises:
        ConfigError: If the receiver does not fit the channel.
    """
    codebook = receiver_codebook(receiver, NUM_CODEWORDS, CODEWORD_LENGTH, seed=seed)
    noise, fading = rngs.generator(seed, "explained noise"), rngs.generator(seed, "fading")
    sent = send(chosen, codebook, make_channel(channel, power), rng=noise, fading=fading)
    return FadedRound(sent, sent.receive(make_receiver(receiver, codebook, settings), popularity, told))


def hear_with_pilots(
    make: Callable[..., BlockPilots],
    channel: ChannelSettings,
    power: PowerSettings,
    *,
    num_active: int,
    num_slots: int,
    seed: int,
) -> FadedRound:
    """Send such a round with pilots at the start of every block, in the place of slots, and count with what they tell.

    Args:
        make: Builds the pilots of a round from its slots, their uses and the uses of a block.
        channel: Its gains and noise.
        power: What devices do about them.
        num_active: Devices.
        num_slots: Of the round, pilots among them.
        seed: Everything random derives from it.

    Raises:
        ConfigError: If a block has no room for the pilots.
    """
    uses, codebook = CODEWORD_LENGTH, receiver_codebook("receiver-csi", NUM_CODEWORDS, CODEWORD_LENGTH, seed=seed)
    air = make_channel(channel, power)
    plan = make(num_slots, uses, facts_of(air).block_uses)
    chosen, popularity = drawn_choices(NUM_CODEWORDS, num_active=num_active, num_slots=len(plan.rows), seed=seed)
    noise, fading = rngs.generator(seed, "explained noise"), rngs.generator(seed, "fading")
    sent = send(chosen, codebook, air, rng=noise, fading=fading, pilots=plan)
    return FadedRound(sent, plan.hear(sent.received, num_active, codebook, popularity, sent.csi.at_receiver))
