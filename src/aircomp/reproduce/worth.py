r"""What decoding is worth in training: bias and noise of an update, apart.

A decoded update is $\hat u = g\,u + e$: the true one shortened (or not) along itself, and the rest. To first order the loss
falls by what points along the truth, $g$; what is left over costs only through the curvature, $\tfrac12 e^T H e$. So two
things are measured: $g$ for every decoder, by codeword and layer; and training with a perfect update to which one of both
was done on purpose.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.awgn import transmit
from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.encode.codebook import count
from aircomp.measure.metrics import vector_gain, vector_nmse
from aircomp.report.rows import bars_of, present, table_of
from aircomp.reproduce import paper
from aircomp.reproduce.jobs import Job
from aircomp.reproduce.parts import Found, Outcome, central, federated, fragments
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.summary import over_seeds
from aircomp.train.fragments import FragmentRound, load_round, round_files
from aircomp.uplinks.decoders import DecoderChoice, decoder_and_codebook
from aircomp.uplinks.outputs import Counts, aggregate_output

# ── training ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Disturbance:
    """Shortens every round's aggregate, then adds white noise of a given energy; `simulate` takes it as `after`."""

    length: float
    """What is left of the update's length."""
    noise: float
    """Energy of the noise over that of the update: the NMSE that it adds."""
    seed: int
    rounds: int = 0

    def __call__(self, update: Float[Tensor, " params"]) -> Float[Tensor, " params"]:
        """Return the disturbed update of the next round."""
        rng = rngs.generator(self.seed, "disturbance", self.rounds)
        self.rounds += 1
        drawn = torch.randn(update.shape, generator=rng).to(update)
        return self.length * update + drawn * (self.noise**0.5 * update.norm() / drawn.norm())


_AT = {"channel.snr_db": 0.0, "channel.snr_reference": "slot"}
CONTENDERS: dict[str, tuple[dict[str, Any], tuple[float, float]]] = {
    "perfect": ({"uplink": "perfect"}, (1.0, 0.0)),
    "perfect, noise of NMSE 1": ({"uplink": "perfect"}, (1.0, 1.0)),
    "perfect, noise of NMSE 5": ({"uplink": "perfect"}, (1.0, 5.0)),
    "perfect, noise of NMSE 20": ({"uplink": "perfect"}, (1.0, 20.0)),
    "perfect, half as long": ({"uplink": "perfect"}, (0.5, 0.0)),
    "perfect, a quarter as long": ({"uplink": "perfect"}, (0.25, 0.0)),
    "AMP-DA, integers": ({"uplink": "amp-da"} | _AT, (1.0, 0.0)),
    "GAMP-Net, integers": ({"uplink": "gamp-net"} | _AT, (1.0, 0.0)),
    "GAMP-Net, soft": ({"uplink": "gamp-net", "aggregate.readout": "soft"} | _AT, (1.0, 0.0)),
    "GAMP-Net, unbiased": ({"uplink": "gamp-net", "aggregate.readout": "unbiased"} | _AT, (1.0, 0.0)),
}
"""Settings of the run; length and noise that are then given to its update. Decoders work at 0 dB."""

CONDITIONS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "server momentum": {"server.kind": "fedavgm", "server.momentum": 0.9, "server.learning_rate": 0.1},
    "few devices": {"participation.low": 2, "participation.high": 3},
    "late": {"local.learning_rate": 0.02},
}
"""Late: from a centrally trained model, at a fifth of the local learning rate."""

LATE = {"epochs": 20, "batch_size": 32, "learning_rate": 0.2}


def worth_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return a run for each contender, condition and seed; and the bias of each decoder."""
    found = []
    start = central(scale, {}, LATE)
    for seed in seeds:
        for condition, changed in CONDITIONS.items():
            for name, (settings, (length, noise)) in CONTENDERS.items():
                run = federated(scale, seed, settings | changed)
                needs = (*run.needs, start) if condition == "late" else run.needs
                job = Job("disturbed", run.params | {"length": length, "noise": noise}, needs)
                found.append(({"condition": condition, "contender": name}, job))
        for readout, decoder in READOUTS:
            params = {"decoder": decoder, "readout": readout, "snr_db": 0.0, "rounds": 4, "seed": seed}
            job = Job("bias", params, (fragments(scale, seed, scale.measured),))
            found.append(({"contender": f"{DECODERS[decoder]}, {readout}"}, job))
    return found


def worth(scale: Scale, found: Found) -> Outcome:
    """Show where each contender ends under each condition, and what its decoder does to an update."""
    runs = [(row, payload) for row, payload in found if "condition" in row]
    rows = over_seeds(runs, ("condition", "contender"), ("test_accuracy_last5",))
    biases = over_seeds([(r, p) for r, p in found if "condition" not in r], ("contender",), BIAS_FIELDS)
    title = "Test accuracy by what is done to the update"
    tables = (
        table_of(title, rows, ("condition", "contender", "test_accuracy_last5", "seeds"), WORTH_NOTE),
        table_of("What decoders do to an update at 0 dB", biases, ("contender", *BIAS_FIELDS), BIAS_NOTE),
    )
    drawn = [
        bars_of(
            [row for row in rows if row["condition"] == each], "contender", ["condition"], "test_accuracy_last5", title
        )
        for each in CONDITIONS
    ]
    return Outcome(rows + biases, tables, present(drawn))


WORTH_NOTE = (
    "Noise is white over the parameters, independent of the update and new in every round; its NMSE is its energy over the "
    f"update's. Decoders work at 0 dB. Server momentum is 0.9 with a tenth of the step. {paper.FIGURES_ONLY}"
)

# ── bias ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

DECODERS = {"amp-da": "AMP-DA", "gamp": "GAMP", "gamp-net": "GAMP-Net"}
READOUTS = (
    ("integers", "amp-da"),
    ("integers", "gamp"),
    ("integers", "gamp-net"),
    ("soft", "gamp-net"),
    ("unbiased", "gamp-net"),
)
BIAS_FIELDS = (
    "update_nmse",
    "update_gain",
    "variance",
    "gain_popular",
    "gain_rare",
    "lowest_layer_gain",
    "highest_layer_gain",
)
BIAS_NOTE = (
    "Gain: the length of the decoded mean along the true one, 1 if unbiased. Popular and rare: the slope of decoded over "
    "true counts in the half of the codewords that the base station uses most and least. By layer: the parameter tensors "
    "with the lowest and the highest gain. Variance: the NMSE that is not bias, NMSE − (1 − gain)²."
)


def bias_of(job: Job, work: Path) -> dict[str, Any]:
    """Measure bias and variance of one decoder and readout on saved rounds; `params`: see `worth_jobs`."""
    params = job.params
    files = round_files(job.needs[0].directory(work))[-params["rounds"] :]
    rows = [_round_bias(load_round(path), number, params) for number, path in enumerate(files)]
    return {"rows": [{name: statistics.fmean(row[name] for row in rows) for name in rows[0]}]}


def _round_bias(saved: FragmentRound, number: int, params: dict[str, Any]) -> Row:
    choice = DecoderChoice(
        decoder=params["decoder"], num_codewords=saved.num_codewords, snr_reference="slot", seed=params["seed"]
    )
    decoder, codebook, _ = decoder_and_codebook(choice)
    counts = count(saved.indices, saved.num_codewords)
    noise = rngs.generator(params["seed"], "noise", number)
    received = transmit(counts, codebook, snr_db=params["snr_db"], reference="slot", rng=noise)
    decoded = decoder.decode(
        received,
        saved.popularity,
        slot_layers=saved.slot_layers,
        bs_indices=saved.bs_indices,
        quant_codebook=saved.quant_codebook,
    )

    def mean_of(counted: Tensor, soft: Tensor | None, devices: float) -> Float[Tensor, "slots fragment"]:
        words = saved.quant_codebook
        output = Counts(
            counts=counted,
            codewords=words,
            num_params=words.shape[1] * len(counted),
            num_active_hat=devices,
            soft_counts=soft,
        )
        return aggregate_output(output, "mean", readout=params["readout"]).view(len(counted), -1).double()

    truth = mean_of(counts, None, saved.num_active)
    found = mean_of(decoded.counts, decoded.mean, decoded.num_active_hat)
    assert saved.slot_layers is not None  # collections of this package have them
    gain, nmse = vector_gain(truth, found), vector_nmse(truth, found)
    own = [saved.slot_layers == each for each in _large(saved)]
    layers = [vector_gain(truth[slots], found[slots]) for slots in own]
    return {
        "update_nmse": nmse,
        "update_gain": gain,
        "variance": nmse - (1 - gain) ** 2,
        **_gain_by_codeword(counts, decoded.counts if params["readout"] == "integers" else decoded.mean),
        "lowest_layer_gain": min(layers),
        "highest_layer_gain": max(layers),
    }


def _large(saved: FragmentRound) -> list[int]:
    """Return the layers of at least twenty slots; the gain of a few slots is noise."""
    assert saved.slot_layers is not None
    sizes = saved.slot_layers.bincount()
    return [layer for layer, size in enumerate(sizes.tolist()) if size >= 20]


def _gain_by_codeword(counts: Tensor, found: Tensor) -> Row:
    """Return the slope of decoded over true counts, for the popular and the rare half of the codewords."""
    half = counts.shape[1] // 2
    parts = {"gain_popular": slice(0, half), "gain_rare": slice(half, None)}
    return {name: _slope(found[:, part].double(), counts[:, part].double()) for name, part in parts.items()}


def _slope(found: Tensor, truth: Tensor) -> float:
    """Return the least-squares slope around each codeword's mean."""
    found, truth = found - found.mean(dim=0), truth - truth.mean(dim=0)
    return float((found * truth).sum() / truth.square().sum())
