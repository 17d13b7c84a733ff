"""How well do decoders do on saved rounds? Same slots and same noise for each of them."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp import metrics
from aircomp import rng as rngs
from aircomp.channel.awgn import transmit
from aircomp.channel.snr import SnrReference
from aircomp.decode.base import Decoded
from aircomp.decode.simple import Genie
from aircomp.decoders import Pairing, pair
from aircomp.encode.codebook import count
from aircomp.errors import ConfigError
from aircomp.results import Row
from aircomp.train.fragments import FragmentRound, load_round, round_files


@dataclass(frozen=True)
class Plan:
    """What to decode, and how."""

    decoders: Sequence[str]
    snr_db: Sequence[float]
    snr_reference: SnrReference = "round"
    codebook: str = "auto"
    """Random-access codebook; auto: the one that each decoder was designed for."""
    codeword_length: int = 64
    layer: Path | None = None
    """Directory of a trained layer; the bundled one if None."""
    num_slots: int | None = None
    """Slots sampled from each round; all if None."""
    seed: int = 0
    device: str = "cpu"


def evaluate(directory: Path, plan: Plan, *, on_step: Callable[[str, int, int], None] | None = None) -> list[Row]:
    """Decode every round of a fragments directory; return one row for each decoder and SNR.

    Args:
        directory: The fragments directory.
        plan: Decoders, SNRs and sampling.
        on_step: Called with a note, the steps done and their number.
    """
    files = round_files(directory)
    found: dict[tuple[str, float], list[Row]] = {(d, s): [] for d in plan.decoders for s in plan.snr_db}
    done, total = 0, len(files) * len(found)
    for index, path in enumerate(files):
        saved = sample_slots(load_round(path), plan, index)
        counts = count(saved.indices, saved.num_codewords)
        for (name, snr_db), rows in found.items():
            rows.append(_decode(saved, counts, name, snr_db, plan, index))
            done += 1
            if on_step:
                on_step(f"{name} {snr_db:g} dB", done, total)
    return [_merge(name, snr_db, rows, plan) for (name, snr_db), rows in found.items()]


def sample_slots(saved: FragmentRound, plan: Plan, index: int) -> FragmentRound:
    """Take a seeded sample of the round's slots, in their order."""
    if plan.num_slots is None or plan.num_slots >= saved.num_slots:
        return saved
    rng = rngs.generator(plan.seed, "evaluated slots", index)
    chosen = torch.randperm(saved.num_slots, generator=rng)[: plan.num_slots].sort().values
    own, layers = saved.bs_indices, saved.slot_layers
    return FragmentRound(
        saved.indices[:, chosen],
        saved.popularity,
        saved.quant_codebook,
        None if own is None else own[chosen],
        None if layers is None else layers[chosen],
    )


def _decode(
    saved: FragmentRound, counts: Int[Tensor, "slots codewords"], name: str, snr_db: float, plan: Plan, index: int
) -> Row:
    pairing = Pairing(
        plan.codebook, saved.num_codewords, plan.codeword_length, plan.layer, plan.snr_reference, plan.seed, plan.device
    )
    decoder, codebook, kind = pair(name, pairing)
    if len(codebook) != saved.num_codewords:
        raise ConfigError(
            f"the layer has {len(codebook)} codewords, but the saved rounds have {saved.num_codewords}; use another layer"
        )
    counts = counts.to(plan.device)
    received = transmit(
        counts,
        codebook,
        snr_db=snr_db,
        reference=plan.snr_reference,
        rng=rngs.generator(plan.seed, "evaluated noise", index),  # the same for every decoder and SNR, up to scale
        num_active=saved.num_active,
    )
    side = {"bs_indices": saved.bs_indices, "slot_layers": saved.slot_layers, "quant_codebook": saved.quant_codebook}
    side = {key: None if value is None else value.to(plan.device) for key, value in side.items()}
    if isinstance(decoder, Genie):
        side["truth"] = counts
    begun = time.perf_counter()
    decoded = decoder.decode(received, saved.popularity.to(plan.device), **side)
    seconds = time.perf_counter() - begun
    found = measure(counts, decoded, saved.quant_codebook, saved.num_active)
    return found | {"seconds": seconds, "slots": len(counts), "codebook": kind}


def measure(
    counts: Int[Tensor, "slots codewords"],
    decoded: Decoded,
    quant_codebook: Float[Tensor, "codewords fragment"],
    num_active: int,
) -> Row:
    """Return how near what was decoded is to what was sent."""
    quant_codebook = quant_codebook.to(counts.device)
    return {
        "accuracy": metrics.count_accuracy(counts, decoded.counts),
        "count_nmse": metrics.count_nmse(counts, decoded.mean),
        "update_nmse_soft": metrics.update_nmse(counts, decoded.mean, quant_codebook),
        "update_nmse_hard": metrics.update_nmse(counts, decoded.counts, quant_codebook),
        "num_active_mae": abs(decoded.num_active_hat - num_active),
        "pupe": metrics.pupe(counts, decoded.counts),
    }


def _merge(name: str, snr_db: float, rows: list[Row], plan: Plan) -> Row:
    merged: Row = {"decoder": name, "codebook": rows[0]["codebook"], "snr_db": snr_db}
    merged |= {"snr_reference": plan.snr_reference, "rounds": len(rows)}
    names = ("accuracy", "count_nmse", "update_nmse_soft", "update_nmse_hard", "num_active_mae", "pupe")
    merged |= {field: statistics.fmean(row[field] for row in rows) for field in names}
    seconds = sum(row["seconds"] for row in rows)
    return merged | {"seconds": seconds, "slots_per_second": sum(row["slots"] for row in rows) / seconds}
