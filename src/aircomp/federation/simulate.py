"""A run of a preset: its settings become objects, and the run is that of `federate`.

The command line's `simulate` and `aircomp.simulate` are this one function.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn
from torch.utils.data import Dataset

from aircomp.aggregation.rules import Rule
from aircomp.aggregation.settings import TrimmedRule
from aircomp.channel.base import Channel, make_channel
from aircomp.common import rng as rngs
from aircomp.common.checks import check_callable, check_path, check_type
from aircomp.common.memory import check_memory
from aircomp.data.images import ImageData, check_images, from_torch, load
from aircomp.data.partition import Partition, split
from aircomp.data.samples import Samples, TensorSamples
from aircomp.decoders.base import Decoder
from aircomp.device.local import Objective, check_functions
from aircomp.device.update import FlatModel
from aircomp.engines.trainer import BASE_STATION
from aircomp.errors import ConfigError
from aircomp.federation import models
from aircomp.federation.configure import (
    check_buffers,
    check_overrides,
    check_phase,
    check_radio,
    configure,
    memory_needs,
)
from aircomp.federation.evaluate import samples_for_test
from aircomp.federation.experiment import Experiment
from aircomp.federation.participation import fewest_active, most_active
from aircomp.federation.round import Transform
from aircomp.federation.run import OnRound, Parts, Simulation, execute, weights_of
from aircomp.link import Link, context_for
from aircomp.measure.scores import accuracy
from aircomp.quantize.fragment import num_slots
from aircomp.schemes.base import Scheme, check_devices
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SlotSettings


def simulate(
    preset: str | Path | Experiment = "digits",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    other_arithmetic: bool = False,
    data_dir: str | Path | None = None,
    on_round: OnRound | None = None,
    model: nn.Module | None = None,
    dataset: ImageData | tuple[Dataset, Dataset] | None = None,
    uplink: str | Scheme | None = None,
    aggregator: str | Rule | None = None,
    decoder: Decoder | None = None,
    channel: str | Channel | None = None,
    before: Transform | None = None,
    after: Transform | None = None,
    command: str = "simulate",
    **overrides: Any,
) -> Simulation:
    """Run federated training and return its metrics, summary and model.

    Args:
        preset: A preset's name, a TOML file, or an `Experiment`.
        out: Run directory; nothing is written without one.
        resume: Continue the run in `out`; it ends with the same bits as an uninterrupted one.
        overwrite: Replace a finished or unfinished run in `out`.
        other_arithmetic: Resume also where other kernels or another torch compute than before: the last bits then differ.
        data_dir: Where datasets are; default `AIRCOMP_DATA` or the user's cache directory.
        on_round: Called with each round's record and what happened in it (None if no device transmitted).
        model: A module of your own instead of `model.name`.
        dataset: An `ImageData`, or a (train, test) pair of torch datasets, instead of `data.name`.
        uplink: A scheme's name, or an object of your own with its methods.
        aggregator: A rule's name, or a function of (counts, codewords).
        decoder: A decoder of your own on the digital link. Devices send the codewords of its attribute `codebook`, if
            it has one.
        channel: A channel's kind, or a channel of your own on the digital link.
        before: Applied to every update before error feedback and quantisation.
        after: Applied to the aggregate before the server step.
        command: The command that owns `out`; `collect` writes more into it.
        **overrides: Settings by name: `rounds=40, snr_db=0.0, **{"devices.total": 100}`.

    Examples:
        >>> run = simulate("digits", uplink="ideal", rounds=2, engine="serial")
        >>> [record["round"] for record in run.metrics]
        [1, 2]
    """
    check_type("preset", preset, (str, Path, Experiment), "a preset's name, a TOML file, or an Experiment")
    for name, path in (("out", out), ("data_dir", data_dir)):
        if path is not None:
            check_path(name, path)
    if on_round is not None:
        check_callable("on_round", on_round, "of (record, exchange)")
    names = {"uplink": uplink, "aggregator": aggregator, "channel": channel}
    overrides |= {name: value for name, value in names.items() if isinstance(value, str)}
    own_uplink, own_rule, own_channel = (None if isinstance(part, str) else part for part in names.values())
    own: dict[str, Any] = {"model": model, "dataset": dataset, "uplink": own_uplink, "decoder": decoder}
    own |= {"channel": own_channel, "aggregator": own_rule, "before": before, "after": after}
    experiment = configure(preset, overrides, {name: part for name, part in own.items() if part is not None})
    check_overrides(experiment, overrides)
    check_phase(experiment)
    check_functions(experiment.local)
    data = _dataset(dataset, experiment, data_dir)
    raw = isinstance(dataset, tuple)
    module = build_model(experiment, data) if model is None else _own_model(model, None if raw else data)
    if experiment.start:
        _load_start(module, Path(experiment.start), Path(out) if resume and out is not None else None)
    module = module.to(experiment.device)
    partition = partition_of(experiment, data)
    holders, objective = holders_of(experiment, data, partition), Objective()
    flat = FlatModel(module)
    if model is not None:
        from aircomp.federation.own import idle_parameters, layout_hash

        where = {"seed": experiment.seed, "device": experiment.device}
        idle = idle_parameters(module, holders[0], objective, **where, num_classes=data.num_classes)
        flat = FlatModel(module, idle=idle)
        experiment = experiment.changed(**{"own.layout": layout_hash(flat)})
    if dataset is not None:
        from aircomp.federation.own import samples_hash

        experiment = experiment.changed(**{"own.samples": samples_hash(holders, samples_for_test(data))})
    length = experiment.fragment_length
    if experiment.uplink.name != "ideal" and flat.num_params < length:
        raise ConfigError(
            f"uplink.quantize.fragment_length = {length}: longer than the model, which has {flat.num_params} parameters; "
            "lower it"
        )
    check_memory(memory_needs(experiment, flat.num_params))
    layers = flat.slot_layers(length).to(experiment.device)
    own_radio = {"uplink": own_uplink, "channel": own_channel, "rule": own_rule, "decoder": decoder}
    link = make_link(experiment, layers, shapes=flat.layer_shapes, **own_radio)
    check_radio(link.scheme, overrides)
    check_buffers(experiment.buffers, link.scheme)
    most = most_active(experiment.participation, experiment.devices.total)
    check_devices(link.scheme, most, fewest_active(experiment.participation))
    if isinstance(link.scheme, Scheme):
        link.scheme.check_round(num_slots(flat.num_params, length), most)
    parts = Parts(
        flat,
        holders,
        link,
        objective,
        {"accuracy": accuracy},
        samples_for_test(data),
        data.variant,
        weights_of(holders, experiment.devices.total) if experiment.weights == "samples" else None,
        before,
        after,
    )
    run = execute(
        experiment,
        parts,
        out=out,
        resume=resume,
        overwrite=overwrite,
        other_arithmetic=other_arithmetic,
        on_round=on_round,
        command=command,
    )
    return replace(run, data=data, partition=partition)


def _dataset(
    dataset: ImageData | tuple[Dataset, Dataset] | None, experiment: Experiment, data_dir: str | Path | None
) -> ImageData:
    if isinstance(dataset, ImageData):
        check_images(dataset)
        return dataset
    if dataset is not None:
        with rngs.global_state(experiment.seed, "dataset"):  # random transforms are drawn once, and alike on resume
            return from_torch(*dataset, name=experiment.dataset_name)
    return load(experiment.data.name, Path(data_dir) if data_dir else None)


def partition_of(experiment: Experiment, data: ImageData) -> Partition:
    """Return which training images each device and the base station hold."""
    rng = rngs.generator(experiment.seed, "partition")
    own = experiment.server.base == "own-data"
    return split(data.train_labels, experiment.devices.total, experiment.partition, rng=rng, base_station=own)


def holders_of(experiment: Experiment, data: ImageData, partition: Partition) -> dict[int, Samples]:
    """Return what devices and base station train on."""
    augment = None
    if experiment.data.augment:
        from aircomp.data.augment import random_crop_flip

        augment = random_crop_flip
    rows = dict(enumerate(partition.devices)) | {BASE_STATION: partition.base_station}
    tensors = (data.train_images, data.train_labels)
    return {holder: TensorSamples(tensors, own, augment) for holder, own in rows.items() if len(own)}


def build_model(experiment: Experiment, data: ImageData) -> nn.Module:
    """Return the experiment's model as it is before training; its first layer normalises the dataset's images."""
    channels, seed = data.train_images.shape[1], experiment.seed
    with rngs.global_state(seed, "model"):  # torch's layers draw from it before they are drawn anew
        normalize = models.Normalize(data.pixel_mean, data.pixel_std)
        rng = rngs.generator(seed, "model")
        return models.build(experiment.model, data.num_classes, channels, rng=rng, normalize=normalize)


def _own_model(model: nn.Module, data: ImageData | None) -> nn.Module:
    """Return a copy of a user's own model; behind a normalisation for a dataset that says what its pixels are like."""
    from aircomp.federation.own import copy_model

    copied = copy_model(model)
    return copied if data is None else models.Normalized(models.Normalize(data.pixel_mean, data.pixel_std), copied)


def _load_start(module: nn.Module, start: Path, resumed: Path | None) -> None:
    """Begin with a trained model, but where a run goes on that has a checkpoint."""
    from aircomp.federation.checkpoint import has_checkpoint
    from aircomp.federation.start import load_start

    if resumed is None or not has_checkpoint(resumed / "checkpoint"):
        load_start(module, start)


def make_link(
    experiment: Experiment,
    slot_layers: Int[Tensor, " slots"] | None,
    *,
    shapes: tuple[tuple[int, ...], ...] | None = None,
    uplink: Scheme | None = None,
    channel: Channel | None = None,
    rule: Rule | None = None,
    decoder: Decoder | None = None,
) -> Link:
    """Return what an experiment sends over; parts of the user's own take the place of those that its settings name.

    Args:
        experiment: The settings.
        slot_layers: The parameter tensor of each fragment.
        shapes: The shapes of those tensors.
        uplink: A scheme.
        channel: A channel.
        rule: An aggregation rule.
        decoder: A decoder on the digital link.
    """
    air = channel or make_channel(experiment.channel, experiment.power)
    context = context_for(
        air,
        slot_layers,
        shapes,
        readout=experiment.aggregate.readout,
        seed=experiment.seed,
        device=experiment.device,
        include_base_station=experiment.server.include_base_station,
    )
    settings = experiment.aggregate
    scheme = uplink
    if decoder is not None:
        from aircomp.schemes.digital.counting import with_decoder  # other schemes need no digital link

        scheme = with_decoder(decoder, experiment.own.decoder, experiment.uplink, context)
    elif scheme is None:
        scheme = make_scheme(experiment.uplink, context)
    return Link(
        scheme,
        air,
        rule or settings.rule,
        keep=settings.keep if isinstance(settings, TrimmedRule) else 1.0,
        readout=settings.readout,
        seed=experiment.seed,
        cap=experiment.power.cap,
        sketch=experiment.sketch,
        budget=None if uplink is None else (experiment.fragment_length, _slot_uses(experiment)),
    )


def _slot_uses(experiment: Experiment) -> int:
    """Return the real channel uses of a slot of the digital link, at whose cost schemes are compared."""
    return getattr(experiment.uplink, "codeword_length", SlotSettings.model_fields["codeword_length"].default)
