"""Which code carries an update best at equal channel uses and energy: equal or matched energies, or no code at all.

Two measurements: the mean of one round against what devices sent and against their raw messages, with bias and variance
apart; and federated training. The SNR is `transmit` throughout.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxtyping import Float
from torch import Tensor

from aircomp.aggregation.readout import Readout
from aircomp.channel.awgn import Awgn
from aircomp.common.results import Row
from aircomp.link import Exchange, Link, communicate
from aircomp.measure.fields import label_of
from aircomp.measure.metrics import vector_gain, vector_nmse
from aircomp.quantize.fragment import join
from aircomp.report.page import Figure
from aircomp.report.rows import lines_of, present, series_of, table_of
from aircomp.reproduce.jobs import Job
from aircomp.reproduce.parts import Found, Outcome, federated, fragments
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.summary import over_seeds
from aircomp.train.fragments import FragmentRound, load_round, round_files
from aircomp.uplinks.base import UplinkContext
from aircomp.uplinks.outputs import aggregate_output
from aircomp.uplinks.schemes import make_uplink
from aircomp.uplinks.settings import UplinkSettings

SCHEMES: dict[str, dict[str, Any]] = {
    "GAMP-Net, repeated": {"name": "gamp-net", "repeat": "auto"},
    "GAMP, equal energies": {"name": "gamp"},
    "GAMP, matched energies": {"name": "gamp", "energy": "matched"},
    "GAMP, matched energies, rate by SNR": {"name": "gamp", "energy": "matched", "rate": "auto"},
    "joint code": {"name": "joint-net"},
    "analog, equal gains": {"name": "analog", "analog.gains": "equal"},
    "analog, gains by layer": {"name": "analog"},
    "analog, gains by layer, LMMSE": {"name": "analog", "analog.estimate": "lmmse"},
    "hybrid": {"name": "hybrid"},
}
"""Settings of the uplink."""
TRAINED = tuple(name for name in SCHEMES if name != "analog, equal gains")
CALIBRATED = ("GAMP, matched energies, rate by SNR", "joint code")
"""Schemes that are trained once more, with the calibrated readout."""
ROUND_SNR_DB = (-10.0, -5.0, 0.0, 5.0, 10.0, 20.0)
TRAINING_SNR_DB = (-10.0, -5.0, 0.0, 10.0)
BOUNDS = {"ideal": {"uplink": "ideal"}, "perfect aggregation": {"uplink": "perfect"}}
MEASURED = ("update_nmse", "update_gain", "variance", "raw_nmse", "raw_gain", "raw_variance")
MODELS: dict[str, dict[str, int]] = {"digits": {"CNN": 4}, "laptop": {}, "desktop": {"ResNet": 2, "VGG": 2}}
"""At every scale the models whose rounds are sent, and how many of the last rounds of a collection."""
COLLECTED: dict[str, dict[str, Any]] = {
    "desktop": {"local.steps": 20, "local.learning_rate": 0.05, "local.data_fraction": 1.0}
}
"""Local training of those rounds, where it is not the scale's: short, so that few rounds get far."""
TRAINED_SCALES = ("digits", "laptop")


def codes_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return single rounds of every scheme at every SNR, and federated runs."""
    found = []
    for seed in seeds:
        for model, rounds in MODELS[scale.name].items():
            found += _round_jobs(scale, seed, model, rounds)
        found += _training_jobs(scale, seed) if scale.name in TRAINED_SCALES else []
    return found


def _round_jobs(scale: Scale, seed: int, model: str, rounds: int) -> list[tuple[Row, Job]]:
    other = scale.other_collected if model == "VGG" else {}
    short = COLLECTED.get(scale.name, {})
    collected = fragments(scale, seed, scale.measured | other | short | {"feedback.kind": "off"})
    found = []
    for name, settings in SCHEMES.items():
        readouts = _readouts(name)
        for snr_db in ROUND_SNR_DB:
            params = {"uplink": settings, "readouts": readouts, "snr_db": snr_db, "rounds": rounds, "seed": seed}
            fields = {"model": model, "scheme": name, "snr_db": snr_db}
            found.append((fields, Job("exchanged", params, (collected,))))
    return found


def _readouts(scheme: str) -> list[str]:
    """Return the readouts that a scheme's rounds are measured with."""
    if SCHEMES[scheme]["name"] not in ("gamp-net", "gamp", "joint-net"):
        return ["auto"]
    return ["soft", "unbiased", "calibrated"] if scheme in CALIBRATED else ["soft", "unbiased"]


def _training_jobs(scale: Scale, seed: int) -> list[tuple[Row, Job]]:
    found: list[tuple[Row, Job]] = [
        ({"scheme": name}, federated(scale, seed, {"aggregate.readout": "auto"} | settings))
        for name, settings in BOUNDS.items()
    ]
    trained = [(name, name, "auto") for name in TRAINED]
    trained += [(f"{name}, calibrated", name, "calibrated") for name in CALIBRATED]
    for title, name, readout in trained:
        settings = {f"uplink.{part}": value for part, value in SCHEMES[name].items()} | {"aggregate.readout": readout}
        for snr_db in TRAINING_SNR_DB:
            at = {"channel.snr_db": snr_db, "channel.snr_reference": "transmit"}
            found.append(({"scheme": title, "snr_db": snr_db}, federated(scale, seed, settings | at)))
    return found


def codes(scale: Scale, found: Found) -> Outcome:
    """Show errors of single rounds, bias and variance apart, and where training ends."""
    single = [(row, payload) for row, payload in found if "model" in row]
    rounds = over_seeds(single, ("model", "scheme", "readout", "snr_db"), MEASURED)
    runs = [(row, payload) for row, payload in found if "model" not in row]
    trained = over_seeds(runs, ("scheme", "snr_db"), ("test_accuracy_last5",))
    columns = ("model", "scheme", "readout", "snr_db")
    sent, raw = MEASURED[:3], MEASURED[3:]
    tables = [
        table_of("Error against the mean of what was sent", rounds, (*columns, *sent, "seeds"), NOTE),
        table_of("Error against the mean of the raw messages", rounds, (*columns, *raw, "seeds"), NOTE),
    ]
    if trained:
        title = "Test accuracy of federated training"
        tables.append(table_of(title, trained, ("scheme", "snr_db", "test_accuracy_last5", "seeds"), TRAINING_NOTE))
    return Outcome(rounds + trained, tuple(tables), present([errors(rounds), _accuracies(trained)]))


def errors(rounds: Sequence[Row]) -> Figure | None:
    """Draw the error of a round's mean, as training takes it, against SNR."""
    usual = [row for row in rounds if row.get("readout") in ("auto", "unbiased") and row["model"] == rounds[0]["model"]]
    series = series_of(usual, ["scheme"], "snr_db", "raw_nmse")
    return lines_of(series, label_of("snr_db"), label_of("raw_nmse"), "Error of one round against SNR", log=True)


def _accuracies(trained: list[Row]) -> Figure | None:
    """Draw where training ends against SNR; the bounds are levels."""
    noisy = [row for row in trained if row.get("snr_db") is not None]
    series = series_of(noisy, ["scheme"], "snr_db", "test_accuracy_last5")
    levels = {row["scheme"]: row["test_accuracy_last5"] for row in trained if row.get("snr_db") is None}
    title = "Test accuracy against SNR"
    return lines_of(series, label_of("snr_db"), label_of("test_accuracy_last5"), title, references=levels)


NOTE = (
    "Sent: what each device's transmission stands for, quantised for the digital schemes. Gain: the length of the found mean "
    "along the true one, 1 if unbiased. Variance: the NMSE that is not bias, NMSE − (1 − gain)². All schemes have 3.2 "
    "channel uses a parameter and the same mean energy; of matched, joint, analog and hybrid one slot in fifty is a pilot. "
    "Every scheme sees each round twice and is measured the second time, when it knows its noise. Messages hold no error "
    "feedback."
)
TRAINING_NOTE = "Mean over the last five evaluations; error feedback as each scheme has it. SNR is transmit SNR."


def exchanged_job(job: Job, work: Path) -> dict[str, Any]:
    """Send saved rounds with one scheme; `params`: settings of the uplink, readouts, SNR, number of rounds, seed."""
    params = job.params
    files = round_files(job.needs[0].directory(work))[-params["rounds"] :]
    sent = [_sent(load_round(path), number, params) for number, path in enumerate(files)]
    return {"rows": [_mean_row([measure(each, readout) for each in sent], readout) for readout in params["readouts"]]}


def _mean_row(rows: list[Row], readout: str) -> Row:
    return {"readout": readout} | {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def measure(exchange: Exchange, readout: Readout) -> Row:
    """Compare the mean that a readout forms with the true ones."""
    found = aggregate_output(exchange.output, "mean", readout=readout)
    sent = _bias("update_nmse", "update_gain", "variance", found, exchange.sent.reconstruction)
    return sent | _bias("raw_nmse", "raw_gain", "raw_variance", found, exchange.messages)


def _sent(saved: FragmentRound, number: int, params: dict[str, Any]) -> Exchange:
    settings = UplinkSettings().changed(**params["uplink"])
    context = UplinkContext(slot_layers=saved.slot_layers, seed=params["seed"], snr_reference="transmit")
    link = Link(make_uplink(settings, context), Awgn(params["snr_db"], "transmit"), seed=params["seed"])
    return send_twice(link, *raw_updates(saved), number)


def raw_updates(saved: FragmentRound) -> tuple[Float[Tensor, " params"], Float[Tensor, "devices params"]]:
    """Return the updates of the base station and of the devices, as a collection of raw fragments saved them."""
    assert saved.fragments is not None and saved.bs_fragments is not None  # noqa: PT018 (the collection saved both)
    num_params = saved.bs_fragments.numel()
    return join(saved.bs_fragments, num_params), join(saved.fragments, num_params)


def send_twice(
    link: Link, base: Float[Tensor, " params"], messages: Float[Tensor, "devices params"], number: int
) -> Exchange:
    """Send a round as it was and once more, when the uplink knows its noise; `number` tells rounds apart."""
    first = communicate(link, base, messages, {}, 2 * number)
    return communicate(link, base, messages, first.memory, 2 * number + 1)


def _bias(error: str, along: str, rest: str, found: Tensor, of_devices: Tensor) -> Row:
    truth = of_devices.double().mean(dim=0)
    gain, nmse = vector_gain(truth, found.double()), vector_nmse(truth, found)
    return {error: nmse, along: gain, rest: nmse - (1 - gain) ** 2}
