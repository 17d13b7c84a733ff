"""Batches that each hold slots of one round.

    rounds ──► choose_slots ──► blocks ──► draw ──► Batch          N slots of one round, some devices, and a channel

What the slots of a round share (the number of active devices, the popularity) is then shared within a batch too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.decoders.estimate.round_estimate import smooth
from aircomp.encode.codebook import count
from aircomp.train.recipe import RoundsSettings
from aircomp.train.rounds import NamedRound, TrainingRound

UNTOLD = 1.2
"""A first decoding tells 1/(1 + UNTOLD/SNR) of the logarithms: .21, .45, .73 and .89 at -5, 0, 5 and 10 dB. Measured on
rounds of the paper's ResNet: .24, .45, .72 and .96."""

OWN_FRAGMENTS = 4096
"""From which a base station knows the popularity where choices are drawn."""


@dataclass(frozen=True)
class Batch:
    """Slots of one round, and the channel they will meet."""

    counts: Float[Tensor, "slots codewords"]
    popularity: Float[Tensor, " codewords"]
    shares: Float[Tensor, " codewords"]
    """How often devices choose each codeword, about as a decoder finds it from the whole round."""
    quant_codebook: Float[Tensor, "codewords fragment"]
    mean_fragments: Float[Tensor, "slots fragment"] | None
    distortion: Float[Tensor, " slots"] | None
    """What quantisation leaves of the devices' fragments, where they were saved (`TrainingRound.distortion`)."""
    num_active: int
    snr_db: float
    snr_reference: Literal["slot", "round"]
    log_ratio: Float[Tensor, "slots codewords"] | None = None
    """How much likelier than in the round each codeword is in each slot, as far as side information tells."""


def choose_slots(
    rounds: Sequence[NamedRound], total: int | None, batch_slots: int, *, rng: torch.Generator
) -> list[Int[Tensor, " _"]]:
    """Draw `total` slots (None: all) from the rounds, as evenly as whole batches allow, and what a round has.

    The total is met exactly if it is a number of whole batches and every round has its share of them.
    """
    chosen, batches = [], None if total is None else -(-total // batch_slots)
    for turn, saved in enumerate(rounds):
        number = saved.num_slots
        if batches is not None:
            share = batches // len(rounds) + (turn < batches % len(rounds))
            number = min(number, share * batch_slots)
        chosen.append(torch.randperm(saved.num_slots, generator=rng)[:number])
    return chosen


def blocks(
    slots: Sequence[Int[Tensor, " _"]], batch_slots: int, *, rng: torch.Generator
) -> list[tuple[int, Int[Tensor, " _"]]]:
    """Cut the slots of every round into shuffled batches: pairs of a round's number and its slots.

    Every round has its first turn, in random order, before any has its second: an epoch that ends early has seen small
    rounds as often as large ones. What does not fill a batch is left out this time, unless the round has less than one.
    """
    found = []
    for number, chosen in enumerate(slots):
        if not len(chosen):
            continue
        shuffled = chosen[torch.randperm(len(chosen), generator=rng)]
        full = len(shuffled) // batch_slots * batch_slots
        cut = (shuffled[:full] if full else shuffled).split(batch_slots)
        found += [(turn, number, block) for turn, block in enumerate(cut)]
    mixed = [found[i] for i in torch.randperm(len(found), generator=rng).tolist()]
    return [(number, block) for _, number, block in sorted(mixed, key=lambda entry: entry[0])]


def draw(
    saved: TrainingRound, slots: Int[Tensor, " slots"], settings: RoundsSettings, *, rng: torch.Generator
) -> Batch:
    """Make a batch of some slots of a round, with an SNR drawn from the range."""
    share, coin = torch.rand(2, generator=rng, dtype=torch.float64).tolist()
    reference = settings.snr_reference
    if reference == "mixed":
        reference = "slot" if coin < 0.5 else "round"
    return make_batch(*vary(saved, slots, settings, rng=rng), settings.snr_db(share), reference)


def vary(
    saved: TrainingRound, slots: Int[Tensor, " slots"], settings: RoundsSettings, *, rng: torch.Generator
) -> tuple[TrainingRound, Int[Tensor, " slots"]]:
    """Draw how many devices send and, for a share of the batches, choices by a Zipf law; return the round and its slots."""
    if settings.devices_high is not None:
        many = torch.rand(2, generator=rng, dtype=torch.float64).mean().item()
        wanted = round(settings.devices_low * (settings.devices_high / settings.devices_low) ** many)
        saved = saved.of(torch.randperm(len(saved.indices), generator=rng)[:wanted])
    if settings.zipf and torch.rand((), generator=rng).item() < settings.zipf:
        return zipf_round(saved, len(slots), rng=rng), torch.arange(len(slots))
    return saved, slots


def zipf_round(saved: TrainingRound, num_slots: int, *, rng: torch.Generator) -> TrainingRound:
    """Replace what the devices of a round chose by independent choices; the base station chose by the same law."""
    n, num_active = len(saved.popularity), len(saved.indices)
    shares = torch.arange(1, n + 1).float().pow(-2 * torch.rand((), generator=rng).item())
    drawn = torch.multinomial(shares, num_active * num_slots + OWN_FRAGMENTS, replacement=True, generator=rng)
    chosen, own = drawn.split([num_active * num_slots, OWN_FRAGMENTS])
    popularity, order = own.bincount(minlength=n).float().sort(descending=True)
    indices = order.argsort()[chosen].view(num_active, num_slots).to(torch.int16)
    return TrainingRound(saved.name, indices, popularity / OWN_FRAGMENTS, saved.quant_codebook, None)


def make_batch(
    saved: TrainingRound, slots: Int[Tensor, " slots"], snr_db: float, reference: Literal["slot", "round"]
) -> Batch:
    """Make a batch of some slots of a round at a given SNR."""
    counts = count(saved.indices[:, slots], len(saved.popularity)).to(saved.popularity.dtype)
    return Batch(
        counts=counts,
        popularity=saved.popularity,
        shares=_shares(saved, snr_db),
        quant_codebook=saved.quant_codebook,
        mean_fragments=None if saved.mean_fragments is None else saved.mean_fragments[slots],
        distortion=None if saved.distortion is None else saved.distortion[slots],
        num_active=len(saved.indices),
        snr_db=snr_db,
        snr_reference=reference,
        log_ratio=_log_ratio(saved, slots, counts, snr_db),
    )


def _log_ratio(
    saved: TrainingRound, slots: Int[Tensor, " slots"], counts: Float[Tensor, "slots codewords"], snr_db: float
) -> Float[Tensor, "slots codewords"] | None:
    """Return what side information tells, weakened as much as a first decoding at this SNR would."""
    if not saved.groups:
        return None
    groups = list(saved.groups.values())
    shares = _chosen(saved)
    return _told(snr_db) * torch.stack([group.log_ratio(slots, counts, shares) for group in groups]).sum(0)


def _shares(saved: TrainingRound, snr_db: float) -> Float[Tensor, " codewords"]:
    """Return what a round tells of its shares: from the base station's popularity so far towards the devices' as is told."""
    own = smooth(saved.popularity.double(), saved.num_slots).to(saved.popularity)
    return torch.softmax(torch.lerp(own.log(), _chosen(saved).log(), _told(snr_db)), dim=0)


def _chosen(saved: TrainingRound) -> Float[Tensor, " codewords"]:
    """Return how often the devices of a round chose each codeword, none of them never."""
    sums = saved.indices.flatten().long().bincount(minlength=len(saved.popularity)).to(saved.popularity) + 1
    return sums / sums.sum()


def _told(snr_db: float) -> float:
    """Return how much of the logarithms a first decoding tells."""
    return 1 / (1 + UNTOLD * 10 ** (-snr_db / 10))
