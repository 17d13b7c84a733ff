r"""Fit the decoders' constants to saved rounds, and print what they would be.

    aircomp collect cifar10-collect --model.stem-stride 2 --rounds 12 --seed 21 --out runs/fit-21
    python tools/fit_constants.py agreement-of-layer --fragments runs/fit-21

| what | constants | decodes with | chooses by |
|---|---|---|---|
| `estimate` | `FITTED` of `decoders/estimate/round_estimate.py` | the estimate of a round, two bases | error of the number |
| `agreement` | `aircomp.decoders.settings.AGREEMENT` | gamp, two bases | count accuracy, then update NMSE |
| `strength` | `aircomp.decoders.side.STRENGTH` | gamp, two bases | count accuracy, then update NMSE |
| `open` | `aircomp.aggregation.readout.OPEN` | gamp-net | update NMSE of the unbiased mean |
| `energy` | `aircomp.encode.energy.EXPONENT` | gamp, two bases of matched energy, `transmit` SNR | update NMSE |
| `rate` | `SHORT_FROM_DB` of `schemes/digital/rate.py` | gamp, matched energies, `transmit` SNR | error of the mean |
| `agreement-of-layer` | `agreement` in a layer's layer.json | gamp-net | count accuracy, then update NMSE |

Give rounds that were collected for this and that no report uses: training rounds for all but the last; for a layer rounds
that its training did not see (validation rounds).

The values are measured one constant at a time, the others as they are. Nothing is written: a change of a constant changes
results, so it is made by hand, with the table in the commit.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aircomp.aggregation import readout
from aircomp.aggregation.rules import aggregate
from aircomp.channel.awgn import Awgn
from aircomp.common import rng as rngs
from aircomp.decoders import side
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.base import Decoder
from aircomp.decoders.estimate import round_estimate as estimate
from aircomp.decoders.estimate.pilot import PilotEstimator
from aircomp.decoders.net.gamp_net import GampNet, GampNetDecoder
from aircomp.decoders.settings import GampNetSettings, GampSettings
from aircomp.encode import energy
from aircomp.encode.codebook import count, make_codebook
from aircomp.layer.communication import CommunicationLayer
from aircomp.link import Link
from aircomp.measure.harness import Trial, send
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.digital.rate import short_context, short_sizes
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import GampLinkSettings
from aircomp.studies.rounds import errors_of as exchanged
from aircomp.studies.rounds import raw_updates, send_all
from aircomp.train.fragments import FragmentRound, load_round, round_files

FACTORS = (0.5, 0.71, 1.0, 1.41, 2.0)
"""A constant is tried at these multiples of what it is."""
AGREEMENTS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16)
STRENGTHS = (10.0, 30.0, 100.0, 300.0)
OPEN = (1.0, 2.0, 3.0, 5.0, 10.0)
EXPONENTS = (4.0, 8.0, 16.0, 32.0, 64.0)
WORSE = 0.0005
"""Count accuracies that differ by less are the same: the update NMSE then decides."""

Row = dict[str, float]


@dataclass(frozen=True)
class Task:
    """Saved rounds, the SNRs at which they are sent, and how."""

    rounds: list[FragmentRound]
    snr_db: list[float]
    snr_reference: Any
    seed: int

    def transmissions(self, codebook: Tensor) -> Iterator[tuple[float, FragmentRound, Trial]]:
        """Yield (SNR, round, how it was sent); the noise of a round is the same for whatever is tried."""
        for number, saved in enumerate(self.rounds):
            for snr_db in self.snr_db:
                rng = rngs.generator(self.seed, "fitted noise", number)
                yield snr_db, saved, send(saved.indices, codebook, Awgn(snr_db, self.snr_reference), rng=rng)


def sample(saved: FragmentRound, num_slots: int, seed: int, number: int) -> FragmentRound:
    """Take some slots of a round, at random: a fit needs many rounds rather than all slots of each."""
    if saved.num_slots <= num_slots:
        return saved
    order = torch.randperm(saved.num_slots, generator=rngs.generator(seed, "fitted slots", number))
    return saved.of_slots(order[:num_slots].sort().values)


def decoded(task: Task, decoder: Decoder, codebook: Tensor) -> dict[float, Row]:
    """Decode every round at every SNR; return the mean of each measure by SNR."""
    found: dict[float, list[Row]] = {snr_db: [] for snr_db in task.snr_db}
    for snr_db, saved, sent in task.transmissions(codebook):
        found[snr_db].append(
            sent.compare(sent.decode(decoder, saved.popularity, **saved.known()), saved.quant_codebook)
        )
    return {snr_db: mean_of(rows) for snr_db, rows in found.items()}


def estimated(task: Task, codebook: Tensor) -> dict[float, Row]:
    """Estimate the number of devices of every round at every SNR; return its mean error by SNR."""
    pilot = PilotEstimator(codebook, snr_reference=task.snr_reference)
    found: dict[float, list[Row]] = {snr_db: [] for snr_db in task.snr_db}
    for snr_db, saved, sent in task.transmissions(codebook):
        shared, _ = pilot.estimate(sent.received[0], saved.popularity / saved.popularity.sum())
        found[snr_db].append({"num_active_mae": abs(shared.num_active - saved.num_active)})
    return {snr_db: mean_of(rows) for snr_db, rows in found.items()}


def mean_of(rows: list[Row]) -> Row:
    """Return the mean of every field."""
    return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def best_by_error(tried: dict[Any, dict[float, Row]]) -> Any:
    """Return the value with the least error of the number of devices, over all SNRs."""
    return min(tried, key=lambda value: statistics.fmean(row["num_active_mae"] for row in tried[value].values()))


def best_by_counts(tried: dict[Any, dict[float, Row]]) -> Any:
    """Return the value with the highest count accuracy, of those as good the one with the least update NMSE."""

    def mean(value: Any, name: str) -> float:
        return statistics.fmean(row[name] for row in tried[value].values())

    highest = max(mean(value, "count_accuracy") for value in tried)
    good = [value for value in tried if mean(value, "count_accuracy") > highest - WORSE]
    return min(good, key=lambda value: mean(value, "update_nmse_soft"))


@contextmanager
def constant(module: Any, name: str, value: Any) -> Iterator[None]:
    """Let a module's constant have another value for a while."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def fit_estimate(task: Task, layer: CommunicationLayer) -> None:
    """Try every field of the estimate's constants."""
    codebook = two_bases(task)
    for field in fields(estimate.Fitted):
        now, tried = getattr(estimate.FITTED, field.name), {}
        for factor in FACTORS:
            value = type(now)(round(now * factor, 4))
            with constant(estimate, "FITTED", replace(estimate.FITTED, **{field.name: value})):
                tried[value] = estimated(task, codebook)
        report(field.name, tried, now, best_by_error(tried))


def fit_agreement(task: Task, layer: CommunicationLayer) -> None:
    """Try the agreement that gamp and posterior expect."""
    codebook, tried = two_bases(task), {}
    for value in AGREEMENTS:
        decoder = Gamp(codebook, GampSettings(agreement=value), snr_reference=task.snr_reference)
        tried[value] = decoded(task, decoder, codebook)
    report("agreement", tried, GampSettings().agreement, best_by_counts(tried))


def fit_strength(task: Task, layer: CommunicationLayer) -> None:
    """Try how many choices a group of slots is given beforehand."""
    codebook, tried = two_bases(task), {}
    for value in STRENGTHS:
        with constant(side, "STRENGTH", value):
            tried[value] = decoded(task, Gamp(codebook, snr_reference=task.snr_reference), codebook)
    report("strength", tried, side.STRENGTH, best_by_counts(tried))


def fit_open(task: Task, layer: CommunicationLayer) -> None:
    """Try how much of the gap to the number of devices a slot's soft counts take."""
    decoder, tried = layer.decoder(snr_reference=task.snr_reference), {}
    rounds = [
        (snr_db, saved, sent.counts, sent.decode(decoder, saved.popularity, slot_layers=saved.slot_layers))
        for snr_db, saved, sent in task.transmissions(layer.codebook)
    ]
    for value in OPEN:
        found: dict[float, list[Row]] = {snr_db: [] for snr_db in task.snr_db}
        with constant(readout, "OPEN", value):
            for snr_db, saved, counts, result in rounds:
                words, truth = saved.quant_codebook, aggregate("mean", counts, saved.quant_codebook)
                integers = aggregate("mean", result.counts, words)
                error = readout.soft_mean(result.mean, words, integers, "unbiased") - truth
                found[snr_db].append({"update_nmse_soft": float(error.square().sum() / truth.square().sum())})
        tried[value] = {snr_db: mean_of(rows) for snr_db, rows in found.items()}
    best = min(tried, key=lambda value: statistics.fmean(row["update_nmse_soft"] for row in tried[value].values()))
    report("open", tried, readout.OPEN, best)


def fit_energy(task: Task, layer: CommunicationLayer) -> None:
    """Try how fast the energy of codewords follows what they stand for; devices spend one on average."""
    codebook, tried = two_bases(task), {}
    for value in EXPONENTS:
        found: dict[float, list[Row]] = {snr_db: [] for snr_db in task.snr_db}
        with constant(energy, "EXPONENT", value):
            for number, saved in enumerate(task.rounds):
                counts, words = count(saved.indices, saved.num_codewords), saved.quant_codebook
                for snr_db in task.snr_db:
                    noise = saved.num_active / codebook.shape[1] / 10 ** (snr_db / 10)
                    wanted = energy.codeword_energies(words, saved.popularity, noise, energy.PEAK)
                    spent = energy.limited(wanted, energy.scale_to_one(wanted, counts.sum(0), energy.PEAK), energy.PEAK)
                    rows = codebook * spent.sqrt().to(codebook)[:, None]
                    rng = rngs.generator(task.seed, "fitted noise", number)
                    sent = send(saved.indices, rows, Awgn(snr_db, "transmit"), rng=rng)  # they spend one on average
                    result = sent.decode(Gamp(codebook).with_codebook(rows), saved.popularity, **saved.known())
                    found[snr_db].append(sent.compare(result, words))
        tried[value] = {snr_db: mean_of(rows) for snr_db, rows in found.items()}
    best = min(tried, key=lambda value: statistics.fmean(row["update_nmse_soft"] for row in tried[value].values()))
    report("exponent of the energy", tried, energy.EXPONENT, best)


def fit_rate(task: Task, layer: CommunicationLayer) -> None:
    """Print at every SNR the error of long and of short codewords; a round is sent twice and measured the second time."""
    print("  SNR  of one device  long: raw_nmse  short: raw_nmse  (unbiased, then soft)")
    for saved in task.rounds:
        base, messages = raw_updates(saved)
        for snr_db in task.snr_db:
            found, alone = [], snr_db - 10 * math.log10(saved.num_active)
            usual, context = GampLinkSettings(name="gamp", energy="matched"), SchemeContext(saved.slot_layers)
            for settings, made_for in ((usual, context), (short_sizes(usual), short_context(context))):
                link = Link(make_scheme(settings, made_for), Awgn(snr_db, "transmit"), seed=task.seed)
                exchange = send_all(link, [(base, messages)] * 2, 1)[0]
                found += [exchanged(exchange, kind)["raw_nmse"] for kind in ("unbiased", "soft")]
            print(f"{snr_db:5g} {alone:14.2f}  " + " ".join(f"{error:.4f}" for error in found), flush=True)


def fit_agreement_of_layer(task: Task, layer: CommunicationLayer) -> None:
    """Try the agreement in the estimates that a trained layer starts from."""
    settings = layer.net.settings
    assert isinstance(settings, GampNetSettings)  # only ours has one
    tried = {}
    for value in AGREEMENTS:
        net = GampNet(settings.changed(agreement=value)).eval().requires_grad_(False)
        net.load_state_dict(layer.net.state_dict())
        decoder = GampNetDecoder(net, layer.codebook, snr_reference=task.snr_reference)
        tried[value] = decoded(task, decoder, layer.codebook)
    report("agreement of the layer", tried, settings.agreement, best_by_counts(tried))


FITS: dict[str, Callable[[Task, CommunicationLayer], None]] = {
    "estimate": fit_estimate,
    "agreement": fit_agreement,
    "strength": fit_strength,
    "open": fit_open,
    "energy": fit_energy,
    "rate": fit_rate,
    "agreement-of-layer": fit_agreement_of_layer,
}


def two_bases(task: Task) -> Tensor:
    """Return the random-access codebook that gamp was designed for."""
    return make_codebook("two-bases", task.rounds[0].num_codewords, 64, rng=rngs.generator(task.seed, "codebook"))


def report(name: str, tried: dict[Any, dict[float, Row]], now: Any, best: Any) -> None:
    """Print one line for each value, SNR by SNR, and what was chosen."""
    shown = [
        f for f in ("count_accuracy", "update_nmse_soft", "num_active_mae") if f in next(iter(tried[best].values()))
    ]
    print(f"{name}: now {now}, best {best}")
    print(f"  {'value':>12}  " + "  ".join(f"{f} at {', '.join(f'{s:g}' for s in tried[best])} dB" for f in shown))
    for value, rows in tried.items():
        cells = "  ".join(" ".join(f"{row[f]:.4f}" for row in rows.values()) for f in shown)
        print(f"  {value!s:>12}  {cells}", flush=True)


def main(arguments: list[str]) -> None:
    """Read the arguments and the rounds, then fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=FITS)
    parser.add_argument("--fragments", nargs="+", type=Path, required=True, help="directories of aircomp collect")
    parser.add_argument("--snr-db", nargs="+", type=float, default=[0.0, 5.0, 10.0])
    parser.add_argument("--snr-reference", choices=["slot", "round", "transmit"], default="slot")
    parser.add_argument("--slots", type=int, default=2_000, help="of every round")
    parser.add_argument("--layer", type=Path, help="directory of a trained layer; the bundled one by default")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    saved = [load_round(path) for directory in given.fragments for path in round_files(directory)]
    rounds = [sample(one, given.slots, given.seed, number) for number, one in enumerate(saved)]
    task = Task(rounds, given.snr_db, given.snr_reference, given.seed)
    FITS[given.what](task, CommunicationLayer.load(given.layer))


if __name__ == "__main__":
    main(sys.argv[1:])
