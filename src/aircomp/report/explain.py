"""A look inside the learned decoder, one slot layer by layer; and at the plan of a refined round, stage by stage."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.channel.awgn import Awgn
from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.decoders.rounding import round_to_sum
from aircomp.layer.communication import CommunicationLayer
from aircomp.link import Link
from aircomp.measure.fields import label_of
from aircomp.measure.harness import send
from aircomp.measure.metrics import count_accuracy
from aircomp.report.figures import bars, heatmap, lines
from aircomp.report.page import Figure, Section, write_page
from aircomp.report.rows import table_of

SHOWN = 12
"""Codewords in the figures: those that were sent, then those that the decoder suspected most."""
LEAST_DRAWN = 0.05
"""Devices: a codeword with a smaller count, true or decoded, has no bar that could be seen."""


PerStep = Float[Tensor, " steps"]


@dataclass(frozen=True)
class Trace:
    """What a decoder thinks of one slot after each of its layers; the first entry is what it starts from."""

    received: Float[Tensor, " uses"]
    truth: Int[Tensor, " codewords"]
    estimates: Float[Tensor, "steps codewords"]
    residuals: PerStep
    """Norm of what the estimate leaves of the received signal."""
    num_active: PerStep
    """Sum of the slot's soft counts."""
    round_accuracy: list[float]
    """Count accuracy of the whole round, had the decoder stopped there."""
    decoded: Int[Tensor, " codewords"]


@torch.no_grad()
def trace_slot(
    layer: CommunicationLayer,
    chosen: Int[Tensor, "devices slots"],
    popularity: Float[Tensor, " codewords"],
    *,
    snr_db: float,
    slot: int,
    seed: int,
) -> Trace:
    """Send a round, decode it, and follow one slot through the layers of the network."""
    sent = send(chosen, layer.codebook, Awgn(snr_db), rng=rngs.generator(seed, "explained noise"))
    counts, received, decoded = sent.counts, sent.received[0], sent.decode(layer, popularity)
    expected = decoded.num_active_hat * popularity / popularity.sum()
    means = [expected.expand(counts.shape), *(state.x_hat for state in layer.trace(received, popularity))]
    rounded = [round_to_sum(mean.clamp_min(0), decoded.num_active) for mean in means[:-1]] + [decoded.counts]
    estimates = torch.stack([mean[slot] for mean in means])
    return Trace(
        received=received[slot],
        truth=counts[slot],
        estimates=estimates,
        residuals=(received[slot] - estimates @ layer.codebook).norm(dim=1),
        num_active=estimates.sum(1),
        round_accuracy=[count_accuracy(counts, found) for found in rounded],
        decoded=rounded[-1][slot],
    )


def decoded_figure(trace: Trace) -> Figure:
    """Draw what was sent in the slot beside what was decoded."""
    seen = torch.maximum(trace.truth, trace.decoded).float().maximum(trace.estimates[-1])
    shown = [j for j in most_telling(trace.truth, trace.estimates[1:].amax(0)) if seen[j] >= LEAST_DRAWN]
    names = [f"#{j}" for j in shown]
    truth = [(n, float(trace.truth[j])) for n, j in zip(names, shown, strict=True)]
    soft = [(n, float(trace.estimates[-1, j])) for n, j in zip(names, shown, strict=True)]
    whole = [(n, float(trace.decoded[j])) for n, j in zip(names, shown, strict=True)]
    return bars(
        {"sent": truth, "soft count": soft, "rounded": whole},
        x="devices",
        y="codeword",
        title="What was sent, and what was decoded",
        alt=f"True and decoded counts of codewords {', '.join(names)}.",
    )


def figures_of(trace: Trace) -> tuple[Figure, ...]:
    """Draw the slot: which codewords, how the estimate settles, and how the residual falls."""
    shown = most_telling(trace.truth, trace.estimates[1:].amax(0))
    names = [f"#{j}" for j in shown]
    steps = ["start", *(str(i) for i in range(1, len(trace.estimates)))]
    matrix = [[round(float(e), 2) + 0.0 for e in trace.estimates[:, j]] for j in shown]
    residuals = {"residual": list(enumerate(trace.residuals.tolist()))}
    accuracy = {"whole round": list(enumerate(trace.round_accuracy))}
    return (
        decoded_figure(trace),
        heatmap(
            matrix,
            rows=names,
            columns=steps,
            x="after layer",
            y="codeword",
            unit="soft count",
            title="The estimate, layer by layer",
            alt="Soft count of each codeword after each layer.",
        ),
        lines(
            residuals,
            x="after layer",
            y="norm of the residual",
            title="What the estimate leaves unexplained",
            alt=f"The residual falls from {trace.residuals[0]:.2f} to {trace.residuals[-1]:.2f}.",
        ),
        lines(
            accuracy,
            x="after layer",
            y=label_of("round_count_accuracy"),
            title="The whole round, had it stopped there",
            alt=f"Count accuracy of the round rises from {trace.round_accuracy[0]:.2f} to {trace.round_accuracy[-1]:.2f}.",
            limits=(-0.02, 1.02),
        ),
    )


def rows_of(trace: Trace) -> list[Row]:
    """Return the numbers behind the figures, a row for each layer."""
    return [
        {
            "layer": step,
            "residual": trace.residuals[step].item(),
            "sum_of_soft_counts": trace.num_active[step].item(),
            "slot_error": (trace.estimates[step] - trace.truth).abs().sum().item(),
            "round_count_accuracy": trace.round_accuracy[step],
        }
        for step in range(len(trace.estimates))
    ]


@dataclass(frozen=True)
class Look:
    """What a page shows of a slot or a round."""

    title: str
    heading: str
    text: str
    table: str
    """The title of the numbers behind the figures."""
    rows: list[Row]
    figures: tuple[Figure, ...] = ()

    def write(self, out: Path, command: str, config: dict[str, Any]) -> Path:
        """Write the page."""
        tables = (table_of(self.table, self.rows, list(self.rows[0])),)
        links = {"result.json": "result.json"}
        section = Section(self.heading, self.text, self.figures, tables, (command,), links, config)
        return write_page(out / "report.html", self.title, [section])


def most_telling(truth: Int[Tensor, " codewords"], suspicion: Float[Tensor, " codewords"]) -> list[int]:
    """Return the codewords to show: those that were sent, then those that were suspected most."""
    sent = truth.argsort(descending=True, stable=True)[: int((truth > 0).sum())].tolist()
    suspected = suspicion.argsort(descending=True).tolist()
    return [*sent, *(j for j in suspected if j not in sent)][:SHOWN]


# ── the plan of a refined round ──────────────────────────────────────────────────────────────────────────────────────

PARAMETERS, ROUNDS, SHARED = 6000, 3, 0.2
"""Of drawn updates; rounds, of which the last is shown; correlation of any two updates."""


def planned_round(*, snr_db: float, num_active: int, seed: int) -> tuple[list[Row], float]:
    """Send drawn updates with `refined-analog`; return the stages of the last round, and its error."""
    link, shape = Link("refined-analog", Awgn(snr_db, "transmit"), seed=seed), (num_active + 1, PARAMETERS)
    shared, own = SHARED**0.5, (1 - SHARED) ** 0.5
    drawn = [rngs.generator(seed, "explained updates", index) for index in range(ROUNDS)]
    updates = [shared * torch.randn(shape[1], generator=rng) + own * torch.randn(shape, generator=rng) for rng in drawn]
    sent = [link.send(each[1:], each[0]) for each in updates][-1]
    values = sent.broadcast.values
    cells = [None, *values["cells"].tolist()]
    rows = [
        {
            "stage": stage,
            "sends": "the update" if cell is None else "the update times b, modulo a lattice",
            "numbers": number,
            "share_of_energy": share,
            "b": cell,
        }
        for stage, (number, share, cell) in enumerate(
            zip(values["numbers"].tolist(), values["shares"].tolist(), cells, strict=True)
        )
    ]
    return rows, sent.nmse
