"""One round on saved messages: what a scheme makes of them, compared with the truth."""

import statistics
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.comparison.entrants import load_own
from aircomp.device.corrupt import corrupt, corrupted_devices
from aircomp.fl.configure import check_phase, configure
from aircomp.fl.experiment import Experiment
from aircomp.fl.radio import make_link
from aircomp.fl.simulate import simulate
from aircomp.link import Exchange
from aircomp.measure.metrics import mean_cosine, vector_gain, vector_nmse
from aircomp.quantize.fragment import num_slots
from aircomp.reproduce.codes import raw_updates, send_twice
from aircomp.reproduce.jobs import Job
from aircomp.reproduce.work import curve_of
from aircomp.train.fragments import FragmentRound, load_round, round_files
from aircomp.uplinks.meter import check_power, record_of

KEPT = ("count_accuracy", "vote_error")
"""The fields that are kept of what a scheme measures itself."""


def round_job(job: Job, work: Path) -> dict[str, Any]:
    """Send the last rounds of a collection. `params` has the preset, settings, own scheme and number of rounds."""
    params = job.params
    experiment = configure(params["preset"], params["settings"])
    check_phase(experiment)
    files = round_files(job.needs[0].directory(work))[-params["rounds"] :]
    rows = [measured(experiment, load_round(path), number, params["own"]) for number, path in enumerate(files)]
    check_power(rows)
    told = rows[0].pop("side_information")
    means = {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}
    return {"rows": [means | {"side_information": told}]}


def training_job(job: Job, work: Path) -> dict[str, Any]:
    """Train with a scheme of the user's own. `params` has the preset, settings and own scheme."""
    params = job.params
    settings = {"engine": "serial"} | params["settings"]
    run = simulate(params["preset"], uplink=load_own(params["own"]), **settings)
    return {"rows": [run.row], "curve": curve_of(run)}


def measured(experiment: Experiment, saved: FragmentRound, number: int, own: str = "") -> Row:
    """Send a saved round twice, and compare what was received the second time with the mean of honest devices."""
    base, messages = raw_updates(saved)
    corruption = experiment.corruption
    bad = corrupted_devices(len(messages), corruption, rng=rngs.generator(experiment.seed, "corrupted", number))
    sent = corrupt(messages, bad, corruption, rng=rngs.generator(experiment.seed, "corruption", number))
    link = make_link(experiment, layers_of(saved, experiment), uplink=load_own(own) if own else None)
    exchange = send_twice(link, base, sent, number)
    beside = link.uplink.diagnose(exchange.sent, exchange.announced, exchange.output)
    return (
        _compared(exchange, messages[~bad], ~bad)
        | {name: beside[name] for name in KEPT if name in beside}
        | record_of(exchange.air)
        | {"update_correlation": mean_cosine(messages)}
        | {"side_information": ", ".join(exchange.air.side_information) or "none"}
    )


def layers_of(saved: FragmentRound, experiment: Experiment) -> Tensor | None:
    """Return the parameter tensor of each fragment, for the length of fragments that the experiment has."""
    if saved.slot_layers is None or saved.bs_fragments is None:
        return None
    length = experiment.uplink.quantize.fragment_length
    of_parameters = saved.slot_layers.long().repeat_interleave(saved.bs_fragments.shape[1])
    return of_parameters[torch.arange(num_slots(len(of_parameters), length)) * length]


def _compared(exchange: Exchange, honest: Float[Tensor, "devices params"], good: Tensor) -> Row:
    """Compare the aggregate with the mean of the honest devices' raw messages, and with the mean of what they sent."""
    raw, sent = honest.double().mean(dim=0), exchange.sent.reconstruction[good].double().mean(dim=0)
    found = exchange.update.double()
    return {
        "raw_nmse": vector_nmse(raw, found),
        "raw_gain": vector_gain(raw, found),
        "update_nmse": vector_nmse(sent, found),
        "update_gain": vector_gain(sent, found),
    }
