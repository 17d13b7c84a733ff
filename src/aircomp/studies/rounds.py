"""Jobs on saved rounds and layers: collect, train, decode, send with any scheme, look at codebooks, quantise."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.aggregation.settings import Readout
from aircomp.channel.awgn import Awgn
from aircomp.channel.base import Attack
from aircomp.channel.settings import FadingSettings, PowerSettings
from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.data.images import load
from aircomp.device.corrupt import corrupt, corrupted_devices
from aircomp.device.update import FlatModel
from aircomp.federation.configure import check_phase, configure
from aircomp.federation.experiment import Experiment
from aircomp.federation.simulate import build_model, make_link
from aircomp.layer.communication import CommunicationLayer
from aircomp.link import Exchange, Link, communicate
from aircomp.measure.harness import send
from aircomp.measure.metrics import mean_cosine, quantization_nmse, vector_gain, vector_nmse
from aircomp.quantize.codebook import build, nearest
from aircomp.quantize.fragment import join, num_slots
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.attack import attack_of
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.digital.composite import CompositePilot
from aircomp.schemes.digital.decoders import DecoderChoice, decoder_and_codebook
from aircomp.schemes.digital.drawn import hear_round, hear_with_pilots
from aircomp.schemes.digital.receiver_csi import OwnPilots
from aircomp.schemes.meter import check_power, record_of
from aircomp.schemes.outputs import Counts, aggregate_output
from aircomp.schemes.registry import make_scheme, scheme_class
from aircomp.schemes.settings import SchemeSettings
from aircomp.studies.entrants import OWN_UPDATE, check_told, load_own, named
from aircomp.studies.jobs import Job, Payload
from aircomp.train.collect import collect
from aircomp.train.evaluate import Plan, evaluate
from aircomp.train.fit import pretrain
from aircomp.train.fragments import FragmentRound, load_round, round_files
from aircomp.train.paper import pretrain_paper
from aircomp.train.recipe import PAPER_PRESETS, PRESETS, PaperTrainingSettings, PretrainSettings

BEFORE = 3
"""Rounds that a scheme sends before those that are measured, so that it knows of noise and updates what it would in a run."""


def last_rounds(job: Job, work: Path, before: int = 0) -> list[FragmentRound]:
    """Return the last rounds of the collection that a job needs, as many as it is told, and some that come before them."""
    return [load_round(path) for path in round_files(job.needs[0].directory(work))[-job.params["rounds"] - before :]]


def send_all(
    link: Link,
    rounds: Sequence[tuple[Float[Tensor, " params"], Float[Tensor, "_ params"]]],
    number: int,
    attacks: Sequence[Attack | None] | None = None,
) -> list[Exchange]:
    """Send rounds one after the other, each with what the scheme remembers of those before; return the last ones.

    Args:
        link: Scheme, channel and rule.
        rounds: The updates of base station and devices, of which each round may have another number.
        number: How many to return.
        attacks: What attackers do in each round beside what their messages say; None: there are none.
    """
    memory, sent = {}, []
    for index, ((base, messages), attack) in enumerate(zip(rounds, attacks or [None] * len(rounds), strict=True)):
        sent.append(communicate(link, base, messages, memory, index, attack))
        memory = sent[-1].memory
    return sent[-number:]


# ── collect, train, decode ───────────────────────────────────────────────────────────────────────────────────────────


def collect_job(job: Job, work: Path, device: str) -> Payload:
    """Save the fragments of a run, the raw ones included."""
    out = job.directory(work)
    settings = {"engine": "serial", "device": device} | job.params["settings"]
    collect(job.params["preset"], out, raw=True, overwrite=True, **settings)
    return {"rows": [{"rounds": len(round_files(out))}]}


def pretrain_job(job: Job, work: Path, device: str) -> Payload:
    """Train a layer on the fragments that it needs; `params`: preset and settings of pretraining."""
    settings = training_settings(job)
    fragments, out = [need.directory(work) for need in job.needs], job.directory(work)
    if isinstance(settings, PaperTrainingSettings):
        layer = pretrain_paper(fragments, settings, out, overwrite=True, device=device)
    else:
        layer = pretrain(fragments, settings, out, overwrite=True, device=device)
    return {"rows": layer.training["test"], "training": {k: v for k, v in layer.training.items() if k != "rounds"}}


def training_settings(job: Job) -> PaperTrainingSettings | PretrainSettings:
    """Return the recipe of a training: the paper's or its authors', or one of our own network."""
    preset = job.params["preset"]
    known = PAPER_PRESETS if preset in PAPER_PRESETS.names() else PRESETS
    return known.load(preset).changed(**job.params["settings"])


def evaluate_job(job: Job, work: Path, device: str) -> Payload:
    """Decode saved rounds; `params` are those of `train.evaluate.Plan`. A second job needed is the layer."""
    fragments, *layers = job.needs
    layer = layers[0].directory(work) if layers else None
    rows = evaluate(fragments.directory(work), Plan(layer=layer, device=device, **job.params))
    return {"rows": [_with_ours_named(row) for row in rows]}


OURS = ("gamp-net", "gamp")
"""Decoders of this package beside the paper's and its rival."""


def _with_ours_named(row: Row) -> Row:
    """Say of our decoders, and of the layer that one of them has, that they are ours."""
    if row["decoder"] not in OURS:
        return row
    ours = {"decoder": f"ours: {row['decoder']}"}
    return row | ours | ({"codebook": "layer, ours"} if row.get("codebook") == "layer" else {})


# ── codebooks and quantisation ───────────────────────────────────────────────────────────────────────────────────────


def geometry_job(job: Job, work: Path) -> Payload:
    """Measure the codebook of a trained layer; without one that it needs, of the package's that `params` name."""
    layer = CommunicationLayer.load(job.needs[0].directory(work) if job.needs else job.params.get("layer"))
    correlation = (layer.codebook @ layer.codebook.T).abs().double()
    off = correlation - torch.diag(correlation.diagonal())
    half = len(off) // 2
    values = torch.linalg.svdvals(layer.codebook.double())
    row: Row = {
        "largest_correlation": off.max().item(),
        "correlation_of_popular_half": _rms(off[:half, :half]),
        "correlation_of_rare_half": _rms(off[half:, half:]),
        "condition_number": (values[0] / values[-1]).item(),
    }
    return {"rows": [row], "correlation": _rounded(correlation), "singular_values": _rounded(values)}


def quantize_job(job: Job, work: Path) -> Payload:
    """Build codebooks from the base station's fragments in several ways and quantise everybody's (Appendix A)."""
    found: dict[str, list[tuple[float, float]]] = {}
    for number, path in enumerate(round_files(job.needs[0].directory(work))):
        saved = load_round(path)
        assert saved.fragments is not None and saved.bs_fragments is not None  # noqa: PT018 (the collection saved both)
        for name, options in job.params["ways"].items():
            settings = QuantizeSettings(**options)
            quantizer = build(saved.bs_fragments, settings, rng=rngs.generator(job.params["seed"], "codebook", number))
            pair = [saved.bs_fragments[None], saved.fragments]
            sent = [quantizer.codebook[nearest(fragments, quantizer.codebook)] for fragments in pair]
            own, theirs = (quantization_nmse(f.flatten(1), q.flatten(1)) for f, q in zip(pair, sent, strict=True))
            found.setdefault(name, []).append((own, theirs))
    rows = [
        {
            "way": name,
            "base_station_nmse": statistics.fmean(e[0] for e in errors),
            "device_nmse": statistics.fmean(e[1] for e in errors),
        }
        for name, errors in found.items()
    ]
    return {"rows": rows}


def _rms(matrix: torch.Tensor) -> float:
    n = len(matrix)
    return (matrix.square().sum() / (n * (n - 1))).sqrt().item()


def _rounded(values: torch.Tensor) -> list[Any]:
    return (values * 1e4).round().div(1e4).tolist()


# ── one round with any scheme ────────────────────────────────────────────────────────────────────────────────────────


def exchange_job(job: Job, work: Path) -> Payload:
    """Send saved rounds with one scheme; `params`: its settings, readouts, SNR, number of rounds, seed."""
    params = job.params
    saved = last_rounds(job, work, BEFORE)
    context = SchemeContext(slot_layers=saved[0].slot_layers, seed=params["seed"], snr_reference="transmit")
    scheme = make_scheme(SchemeSettings(**params["scheme"]), context)
    link = Link(scheme, Awgn(params["snr_db"], "transmit"), seed=params["seed"])
    sent = send_all(link, [raw_updates(each) for each in saved], params["rounds"])
    rows = []
    for readout in params["readouts"]:
        measured = [errors_of(each, readout) for each in sent]
        rows.append({"readout": readout} | _means(measured))
    return {"rows": rows}


def _means(rows: Sequence[Row]) -> Row:
    return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def errors_of(exchange: Exchange, readout: Readout) -> Row:
    """Compare the mean that a readout forms with the true ones, bias and variance apart."""
    found = aggregate_output(exchange.output, "mean", readout=readout)
    rows: Row = {}
    for prefix, rest, of_devices in (
        ("update", "variance", exchange.sent.reconstruction),
        ("raw", "raw_variance", exchange.messages),
    ):
        truth = of_devices.double().mean(dim=0)
        gain, nmse = vector_gain(truth, found.double()), vector_nmse(truth, found)
        rows |= {f"{prefix}_nmse": nmse, f"{prefix}_gain": gain, rest: nmse - (1 - gain) ** 2}
    return rows


def raw_updates(
    saved: FragmentRound, num_params: int | None = None
) -> tuple[Float[Tensor, " params"], Float[Tensor, "devices params"]]:
    """Return the updates of the base station and of the devices, as a collection of raw fragments saved them.

    Args:
        saved: A round.
        num_params: Parameters of the model; without it what fills the last fragment counts as parameters, too.
    """
    assert saved.fragments is not None and saved.bs_fragments is not None  # noqa: PT018 (the collection saved both)
    num_params = saved.bs_fragments.numel() if num_params is None else num_params
    return join(saved.bs_fragments, num_params), join(saved.fragments, num_params)


# ── the arena ────────────────────────────────────────────────────────────────────────────────────────────────────────

KEPT = ("count_accuracy", "vote_error")
"""The fields that are kept of what a scheme measures itself."""


def arena_job(job: Job, work: Path) -> Payload:
    """Send the last rounds of a collection; `params` beside a run's: a scheme of the user's own, the number of rounds."""
    params = job.params
    experiment = configure(params["preset"], params["settings"])
    check_phase(experiment)
    check_told(params)
    with named(params["own"]):
        rows = measured(experiment, last_rounds(job, work, BEFORE), params["rounds"], params["own"])
        check_power(rows)
    told = rows[0].pop("side_information")
    return {
        "rows": [_means([{k: v for k, v in row.items() if k in rows[0]} for row in rows]) | {"side_information": told}]
    }


def measured(experiment: Experiment, saved: Sequence[FragmentRound], number: int, own: str = "") -> list[Row]:
    """Send saved rounds, and compare what was received of the last ones with the mean of honest devices."""
    rounds, honest, attacks, corruption, shapes = [], [], [], experiment.corruption, shapes_of(experiment)
    num_params = sum(map(math.prod, shapes))
    for index, each in enumerate(saved):
        base, messages = raw_updates(each, num_params)
        bad = corrupted_devices(len(messages), corruption, rng=rngs.generator(experiment.seed, "corrupted", index))
        sent = corrupt(messages, bad, corruption, rng=rngs.generator(experiment.seed, "corruption", index))
        rounds.append((base, sent))
        attacks.append(attack_of(bad, corruption))
        honest.append(
            (~bad if corruption.kind != "lie" else torch.ones_like(bad), messages)
        )  # a liar's update is honest
    last = list(zip(rounds, honest, strict=True))[-number:]
    agreement = [{"update_correlation": mean_cosine(messages)} for _, (_, messages) in last]
    if own == OWN_UPDATE:
        alone = [_own_update(base, messages[good]) for (base, _), (good, messages) in last]
        return [row | about for row, about in zip(alone, agreement, strict=True)]
    layers = layers_of(saved[0], experiment, num_params)
    link = make_link(experiment, layers, shapes=shapes, uplink=load_own(own) if own else None)
    found = [
        _compared(exchange, messages[good], good) | _told(link, exchange)
        for exchange, (_, (good, messages)) in zip(send_all(link, rounds, number, attacks), last, strict=True)
    ]
    return [row | about for row, about in zip(found, agreement, strict=True)]


def _told(link: Link, exchange: Exchange) -> Row:
    beside = link.scheme.diagnose(exchange.sent, exchange.broadcast, exchange.output)
    side = ", ".join(exchange.air.side_information) or "none"
    return (
        {name: beside[name] for name in KEPT if name in beside} | record_of(exchange.air) | {"side_information": side}
    )


def shapes_of(experiment: Experiment) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the tensors of an experiment's model."""
    data = load(experiment.data.name)
    return FlatModel(build_model(experiment, data)).layer_shapes


def _own_update(base: Float[Tensor, " params"], honest: Float[Tensor, "devices params"]) -> Row:
    """Compare the base station's own update, scaled to the least error, with the mean of the honest devices' messages."""
    raw = honest.double().mean(dim=0)
    best = (base.double() @ raw) / base.double().square().sum().clamp(min=1e-300) * base.double()
    told = "the scale with the least error; no radio is used"
    costs = dict.fromkeys(("channel_uses", "energy_per_device", "energy_nominal", "energy_max"), 0.0)
    return {"raw_nmse": vector_nmse(raw, best), "raw_gain": vector_gain(raw, best), "side_information": told} | costs


def layers_of(saved: FragmentRound, experiment: Experiment, num_params: int) -> Tensor | None:
    """Return the parameter tensor of each fragment, for the length of fragments that the experiment has."""
    if saved.slot_layers is None or saved.bs_fragments is None:
        return None
    length = experiment.fragment_length
    of_parameters = saved.slot_layers.long().repeat_interleave(saved.bs_fragments.shape[1])[:num_params]
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


# ── bias ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def bias_job(job: Job, work: Path) -> Payload:
    """Measure bias and variance of one decoder and readout on saved rounds; `params`: these, SNR, rounds, seed."""
    rows = [_round_bias(saved, number, job.params) for number, saved in enumerate(last_rounds(job, work))]
    return {"rows": [_means(rows)]}


def _round_bias(saved: FragmentRound, number: int, params: dict[str, Any]) -> Row:
    choice = DecoderChoice(
        decoder=params["decoder"], num_codewords=saved.num_codewords, snr_reference="slot", seed=params["seed"]
    )
    decoder, codebook, _ = decoder_and_codebook(choice)
    noise = rngs.generator(params["seed"], "noise", number)
    sent = send(saved.indices, codebook, Awgn(params["snr_db"], "slot"), rng=noise)
    counts, decoded = sent.counts, sent.decode(decoder, saved.popularity, **saved.known())

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


# ── fading ───────────────────────────────────────────────────────────────────────────────────────────────────────────

PILOTS = {"receiver-csi": OwnPilots, "md-aircomp-plus": CompositePilot}
"""Of the links that have pilots in every block."""
DEVICES, BLOCK_SLOTS = 10, 128
SLOTS = {64: 256}
"""Of a round, by antennas: many of them tell in fewer slots; 512 of others."""


def faded_job(job: Job, work: Path) -> Payload:
    """Hear a drawn round through fading; `params`: scheme, power control, antennas, SNR, seed, perhaps a number of slots.

    Every receiver hears the same drawn rounds through the same gains. The SNR is `transmit`, so that devices spend the same
    mean energy whatever power control makes of it. The noise is estimated; so is the number of devices by receivers in phase.
    """
    given = job.params
    antennas, scheme = given["antennas"], given["scheme"]
    channel = FadingSettings(
        snr_db=given["snr_db"],
        snr_reference="transmit",
        antennas=antennas,
        block_slots=BLOCK_SLOTS,
    )
    power, slots = PowerSettings(control=given["power"]), given.get("slots", SLOTS.get(antennas, 512))
    drawn = {"num_active": DEVICES, "num_slots": slots, "seed": given["seed"]}
    if scheme in PILOTS:
        heard = hear_with_pilots(PILOTS[scheme], channel, power, **drawn)
    else:
        phaseless = not scheme_class(scheme).facts.needs.startswith("in phase")
        heard = hear_round(scheme, channel, power, **drawn, told=float(DEVICES) if phaseless else None)
    return {"rows": [{"count_accuracy": heard.accuracy}]}
