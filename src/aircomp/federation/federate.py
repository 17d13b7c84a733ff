"""A federation of any model, task and data: a user's own objects become the run of `federation/run.py`."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.data import Subset

from aircomp.aggregation.settings import AggregateSettings, TrimmedRule
from aircomp.channel.awgn import Awgn
from aircomp.channel.disturb import Disturbed
from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings
from aircomp.common import rng as rngs
from aircomp.common.artefact import config_hash
from aircomp.common.checks import check_callable, check_numbers, check_path, check_type, describe, part_name
from aircomp.common.memory import check_memory
from aircomp.common.tensors import check_device
from aircomp.data.clients import clients_of
from aircomp.data.samples import Collate, Samples, as_samples
from aircomp.device.local import Loss, Objective, Step, check_functions
from aircomp.device.settings import CorruptionSettings, FeedbackSettings, LocalSettings
from aircomp.device.update import FlatModel
from aircomp.engines import Engine
from aircomp.engines.trainer import BASE_STATION
from aircomp.errors import ConfigError
from aircomp.federation.configure import check_buffers, memory_needs
from aircomp.federation.evaluate import score
from aircomp.federation.experiment import Buffers, Experiment
from aircomp.federation.own import PROBE_SAMPLES, copy_model, idle_parameters, layout_hash, own_name, samples_hash
from aircomp.federation.participation import check_participation, clipped, most_active
from aircomp.federation.round import Transform
from aircomp.federation.run import OnRound, Parts, Simulation, execute, weights_of
from aircomp.federation.settings import DevicesSettings, OwnParts, ParticipationSettings, Uniform
from aircomp.link import Link
from aircomp.measure.scores import Metric
from aircomp.schemes.base import check_devices
from aircomp.server.settings import ServerSettings


def federate(
    model: nn.Module,
    clients: Sequence[Any] | Any,  # Any: datasets are a matter of methods
    link: Link,
    *,
    loss: Loss | None = None,
    step: Step | None = None,
    test: Any = None,
    metrics: Mapping[str, Metric] | None = None,
    base: Any = None,
    local: LocalSettings | None = None,
    participation: ParticipationSettings | None = None,
    weights: Literal["equal", "samples"] | Sequence[float] | Tensor = "equal",
    rounds: int = 40,
    seed: int = 0,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    other_arithmetic: bool = False,
    on_round: OnRound | None = None,
    collate: Collate | None = None,
    engine: Engine = "serial",
    workers: int = 0,
    ray_address: str = "",
    device: Literal["cpu", "cuda"] = "cpu",
    server: ServerSettings | None = None,
    feedback: FeedbackSettings | None = None,
    corruption: CorruptionSettings | None = None,
    buffers: Buffers = "average",
    evaluate_every: int = 1,
    checkpoint_seconds: float = 10.0,
    before: Transform | None = None,
    after: Transform | None = None,
) -> Simulation:
    """Train a model on many clients whose updates go over the air.

        run = aircomp.federate(model, clients, aircomp.Link("gamp", aircomp.Awgn(5.0)), loss=F.cross_entropy, test=test,
                               metrics={"accuracy": aircomp.metrics.accuracy})

    Args:
        model: Any module; a copy is trained. Parameters without a gradient are not sent.
        clients: A map-style dataset for each client, of any size and any samples; or an object with `load_partition`.
        link: The scheme, its channel and rule. The run has rounds and a memory of its own; the link is left as it is.
        loss: `loss(model(inputs), targets)` of a batch (inputs, targets), one number.
        step: In its place, `step(model, batch)`, which returns the loss.
        test: A dataset that the base station tests with.
        metrics: By name, functions of all outputs and targets of the test; one whose smaller values are better has
            `higher_is_better = False`.
        base: The base station's own dataset. Without one it takes the first active device's message in place of an update of
            its own, which counts as side information.
        local: How a client trains between two rounds.
        participation: Who takes part: `Uniform(7, 13)` (the paper's), `Fixed`, `Bernoulli`, `Trace`.
        weights: What clients count by. `samples`: a client multiplies its update with its share of the samples over the mean
            share, which both sides know. Numbers, one a client, take the place of samples. A robust rule, which leaves
            updates out, then sees long and short ones.
        rounds: How many.
        seed: Everything random derives from it, but what the link's own seed draws.
        out: Run directory; nothing is written without one.
        resume: Continue the run in `out`; it ends with the same bits as an uninterrupted one.
        overwrite: Replace the run in `out`.
        other_arithmetic: Resume also where other kernels or another torch compute than before: the last bits then differ.
        on_round: Called with each round's record and what happened in it (None if no client sent).
        collate: Makes a batch of a list of samples; torch's default otherwise.
        engine: `serial`, `processes` or `ray`. The result does not depend on it.
        workers: Processes; 0 means one for each core.
        ray_address: HOST:PORT of a Ray cluster.
        device: Where tensors are computed: `cpu` or `cuda`.
        server: The server's optimiser.
        feedback: The clients' error memory.
        corruption: Clients that fail.
        buffers: What becomes of running statistics; see `aircomp simulate --help`.
        evaluate_every: Rounds between two tests.
        checkpoint_seconds: Time between two checkpoints; 0 saves every round.
        before: Applied to every update before error feedback.
        after: Applied to the aggregate before the server step.

    Raises:
        AirCompError: In one sentence, if something does not fit.
    """
    _check_types(link, local, participation, server, feedback, corruption)
    objective = _objective(loss, step)
    if out is not None:
        check_path("out", out)
    functions = {"on_round": "of (record, exchange)", "collate": "of a list of samples"}
    functions |= {"before": "of an update", "after": "of the aggregate"}
    for name, part in (("on_round", on_round), ("collate", collate), ("before", before), ("after", after)):
        if part is not None:
            check_callable(name, part, functions[name])
    check_device("device", device)
    measured = _metrics(metrics, test)
    datasets = clients_of(clients)
    holders: dict[int, Samples] = {i: as_samples(f"client {i}", each, collate) for i, each in enumerate(datasets)}
    total = len(holders)
    if base is not None:
        holders[BASE_STATION] = as_samples("base", base, collate)
    tested = None if test is None else as_samples("test", test, collate)
    shares = _shares(weights, holders, total)
    local = local or LocalSettings()
    check_functions(local)
    module = copy_model(model).to(device)
    idle = idle_parameters(module, holders[0], objective, seed=seed, device=device)
    if test is not None and tested is not None:  # a test that cannot be read is found before a round is spent
        few = as_samples("test", Subset(test, range(min(PROBE_SAMPLES, len(tested)))), collate)
        with rngs.global_state(seed, "probe", device=device):
            score(copy.deepcopy(module), few, objective, dict.fromkeys(measured, _unmeasured), "before round 1")
    flat = FlatModel(module, idle=idle)
    link = link.made_for(flat.layer_shapes, device)
    own = {"model": own_name(model), "layout": layout_hash(flat), "samples": samples_hash(holders, tested)}
    own |= {"dataset": part_name(getattr(datasets[0], "dataset", datasets[0])), "metrics": ", ".join(measured)}
    own |= {"weights": "" if isinstance(weights, str) else config_hash([float(each) for each in weights])}
    parts = {"loss": loss, "step": step, "collate": collate, "before": before, "after": after}
    own |= {name: part_name(part) for name, part in parts.items() if part is not None}
    experiment = Experiment(
        rounds=rounds,
        seed=seed,
        evaluate_every=evaluate_every,
        workers=workers,
        engine=engine,
        ray_address=ray_address,
        device=device,
        checkpoint_seconds=checkpoint_seconds,
        buffers=buffers,
        weights=weights if isinstance(weights, str) else "equal",
        devices=DevicesSettings(total=total),
        participation=participation or clipped(Uniform(), total),
        local=local,
        corruption=corruption or CorruptionSettings(),
        feedback=feedback or FeedbackSettings(),
        server=_server(server, base),
        own=OwnParts(**own, **_own_radio(link)),
        **_radio(link),
    )
    check_participation(experiment.participation, total)
    if buffers == "recomputed" and base is None:
        raise ConfigError("buffers = 'recomputed' takes samples of the base station; give base=, or buffers='average'")
    check_buffers(buffers, link.scheme)
    check_devices(link.scheme, most_active(experiment.participation, total))
    check_memory(memory_needs(experiment, flat.num_params))
    made = Parts(flat, holders, link, objective, measured, tested, own["dataset"], shares, before, after)
    return execute(
        experiment,
        made,
        out=out,
        resume=resume,
        overwrite=overwrite,
        other_arithmetic=other_arithmetic,
        on_round=on_round,
        command="simulate",
    )


def _check_types(link: Any, local: Any, participation: Any, server: Any, feedback: Any, corruption: Any) -> None:
    check_type("link", link, Link, "an aircomp.Link, say aircomp.Link('gamp', aircomp.Awgn(snr_db=5.0))")
    groups = {
        "local": (local, LocalSettings, "aircomp.Local(…)"),
        "participation": (participation, ParticipationSettings, "aircomp.Uniform, Fixed, Bernoulli or Trace"),
        "server": (server, ServerSettings, "aircomp.Server(…)"),
        "feedback": (feedback, FeedbackSettings, "aircomp.Feedback(…)"),
        "corruption": (corruption, CorruptionSettings, "aircomp.Corruption(…)"),
    }
    for name, (value, kind, wanted) in groups.items():
        if value is not None:
            check_type(name, value, kind, wanted)


def _objective(loss: Any, step: Any) -> Objective:
    if (loss is None) == (step is None):
        raise ConfigError(
            f"{'neither' if loss is None else 'both'} of loss and step were given; expected one of them, say "
            "loss=torch.nn.functional.cross_entropy"
        )
    check_callable("loss" if step is None else "step", loss if step is None else step, "that returns the loss")
    return Objective(loss, step)


def _metrics(metrics: Any, test: Any) -> dict[str, Metric]:
    if metrics is None:
        return {}
    check_type("metrics", metrics, Mapping, "functions by name, say {'accuracy': aircomp.metrics.accuracy}")
    if metrics and test is None:
        raise ConfigError("metrics were given without test; expected a dataset to test with")
    for name, metric in metrics.items():
        if not isinstance(name, str) or not name.isidentifier() or name == "loss":
            raise ConfigError(f"a metric is called {name!r}; expected a word like accuracy, and not loss")
        check_callable(f"the metric {name!r}", metric, "of (outputs, targets)")
    return dict(metrics)


def _unmeasured(outputs: Any, targets: Any) -> float:
    return 0.0


def _shares(weights: Any, holders: Mapping[int, Samples], total: int) -> list[float] | None:
    """Return what each client multiplies its update with; None: one."""
    if isinstance(weights, str):
        if weights not in ("equal", "samples"):
            raise ConfigError(
                f"weights is {describe(weights)}; expected 'equal', 'samples', or a number for each client"
            )
        return weights_of(holders, total) if weights == "samples" else None
    numbers = weights.tolist() if isinstance(weights, Tensor) else weights
    given = list(numbers) if isinstance(numbers, Sequence) else numbers
    check_numbers("weights", given, low=0, high=1e12)
    if len(given) != total:
        raise ConfigError(f"weights are {len(given)} numbers for {total} clients; expected one for each")
    if not sum(given):
        raise ConfigError("weights are all zero; expected one above zero at least")
    return [float(each) * total / sum(given) for each in given]


def _server(server: ServerSettings | None, base: Any) -> ServerSettings:
    settings = server or ServerSettings()
    return settings if base is not None else settings.changed(base="first-device")


def _own_radio(link: Link) -> dict[str, str]:
    """Return the names of those parts of a link that are the user's own."""
    own = {} if link.settings is not None else {"uplink": part_name(link.scheme)}
    own |= {} if isinstance(link.channel, Awgn | Fading) else {"channel": part_name(link.channel)}
    return own | ({} if isinstance(link.rule, str) else {"aggregator": part_name(link.rule)})


def _radio(link: Link) -> dict[str, Any]:
    """Return a link as settings, for the record; parts of the user's own have a name alone."""
    found: dict[str, Any] = {} if link.settings is None else {"uplink": link.settings}
    match link.channel:
        case Awgn():
            found["channel"] = ChannelSettings(snr_db=link.channel.snr_db, snr_reference=link.channel.reference)
            if isinstance(link.channel, Disturbed):
                found["channel"] = found["channel"].changed(disturbance=link.channel.disturbance)
        case Fading():
            found |= {"channel": link.channel.settings, "power": link.channel.power.changed(cap=link.cap)}
    rule = AggregateSettings(rule=link.rule if isinstance(link.rule, str) else "mean", readout=link.readout)
    found["sketch"] = link.sketch
    return found | {"aggregate": rule.changed(keep=link.keep) if isinstance(rule, TrimmedRule) else rule}
