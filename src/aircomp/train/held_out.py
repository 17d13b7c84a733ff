"""How a trained layer does on rounds that it has not seen."""

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from aircomp.channel.awgn import transmit
from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.encode.codebook import count
from aircomp.layer import CommunicationLayer
from aircomp.train.batches import choose_slots
from aircomp.train.evaluate import measure
from aircomp.train.rounds import RoundsSettings, TrainingRound

SNR_DB = (0.0, 3.0, 5.0, 10.0, 15.0, 20.0)
"""The paper's."""
DEVICES = 10
"""Of a round, where the layer was trained for any number."""


def measure_layer(
    layer: CommunicationLayer, rounds: Sequence[TrainingRound], settings: RoundsSettings, *, seed: int
) -> list[Row]:
    """Decode a sample of every round at the paper's SNRs; return one row for each SNR.

    The SNR refers to the slot, as in the paper, unless the layer was trained with one noise variance for the round.
    """
    reference = "round" if settings.snr_reference == "round" else "slot"
    decoder = layer.decoder(snr_reference=reference)
    device = layer.codebook.device
    chosen = choose_slots(rounds, settings.test_samples, 1, rng=rngs.generator(seed, "test slots"))
    rows = []
    for snr_db in SNR_DB:
        found = []
        for number, (whole, slots) in enumerate(zip(rounds, chosen, strict=True)):
            saved = whole if settings.devices_high is None else whole.of(torch.arange(len(whole.indices))[:DEVICES])
            counts = count(saved.indices[:, slots], len(saved.popularity)).to(device)
            rng = rngs.generator(seed, "test noise", number)
            received = transmit(counts, layer.codebook, snr_db=snr_db, reference=reference, rng=rng)
            decoded = decoder.decode(received, saved.popularity.to(device), **_side(saved, slots))
            found.append(measure(counts, decoded, saved.quant_codebook, len(saved.indices)))
        row: Row = {"snr_db": snr_db, "snr_reference": reference, "rounds": len(rounds)}
        rows.append(row | {name: statistics.fmean(each[name] for each in found) for name in found[0]})
    return rows


def _side(saved: TrainingRound, slots: Tensor) -> dict[str, Any]:
    """Return the side information of some slots, where the layer was trained with it."""
    return {name: group.of[slots] for name, group in saved.groups.items()}
