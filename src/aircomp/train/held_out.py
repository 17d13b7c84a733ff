"""How a trained layer does on rounds that it has not seen."""

import statistics
from collections.abc import Sequence
from typing import Any, Literal

import torch

from aircomp.channel.awgn import Awgn
from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.layer.communication import CommunicationLayer
from aircomp.measure.harness import send
from aircomp.train.batches import choose_slots
from aircomp.train.rounds import TrainingRound

SNR_DB = (0.0, 3.0, 5.0, 10.0, 15.0, 20.0)
"""The paper's."""


def measure_layer(
    layer: CommunicationLayer,
    rounds: Sequence[TrainingRound],
    num_slots: int,
    reference: Literal["slot", "round"],
    *,
    seed: int,
    num_devices: int | None = None,
) -> list[Row]:
    """Decode a sample of every round at the paper's SNRs; return one row for each SNR.

    Args:
        layer: The layer.
        rounds: Rounds that it has not seen.
        num_slots: Slots of all rounds together.
        reference: What the SNR refers to.
        seed: Of slots and noise.
        num_devices: The first devices of each round send; all if not given.
    """
    decoder = layer.decoder(snr_reference=reference)
    device = layer.codebook.device
    chosen = choose_slots(rounds, num_slots, 1, rng=rngs.generator(seed, "test slots"))
    rows = []
    for snr_db in SNR_DB:
        found = []
        for number, (whole, slots) in enumerate(zip(rounds, chosen, strict=True)):
            saved = whole if num_devices is None else whole.of(torch.arange(len(whole.indices))[:num_devices])
            rng = rngs.generator(seed, "test noise", number)
            sent = send(saved.indices[:, slots].to(device), layer.codebook, Awgn(snr_db, reference), rng=rng)
            side: Any = {name: group.of[slots] for name, group in saved.groups.items()}  # where it was trained with it
            decoded = sent.decode(decoder, saved.popularity.to(device), **side)
            found.append(sent.compare(decoded, saved.quant_codebook))
        row: Row = {"snr_db": snr_db, "snr_reference": reference, "rounds": len(rounds)}
        rows.append(row | {name: statistics.fmean(each[name] for each in found) for name in found[0]})
    return rows
