"""What does a round cost under Flower? The same work by `aircomp simulate`, by Flower alone, and by Flower with us.

Flower's simulation engine costs what it costs; together with our uplink a round should take no longer than Flower's
own round and ours, one after the other.
"""

import itertools
import logging
import os
import statistics
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from aircomp import rng as rngs
from aircomp.fl import models
from aircomp.fl.data import ImageData, load
from aircomp.fl.executors import one_thread
from aircomp.fl.experiment import Experiment
from aircomp.fl.partition import split
from aircomp.fl.simulate import configure, evaluate, simulate
from aircomp.fl.trainer import BASE_STATION, Task, Trainer
from aircomp.results import Row
from aircomp.uplinks.schemes import make_uplink

SETTINGS = "experiment"
"""Key of the round's configuration under which clients find what to do."""


def bench_flower(rounds: int, devices: int, workers: int) -> list[Row]:
    """Return seconds per round of the three contenders: medians without the first round."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # a benchmark sends nothing to anybody
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import aircomp.adapters.flower  # noqa: F401  says at once which extra is missing

    experiment = configure(
        "digits",
        {
            "uplink": "gamp",
            "rounds": rounds,
            "workers": workers,
            "devices.total": devices,
            "participation.kind": "fixed",
            "participation.number": devices,
        },
    )
    # ours goes first: it forks, which is safe only before Flower starts its threads
    seconds = {"aircomp simulate": time_simulate(experiment), **time_flower(experiment)}
    own, alone, both = seconds.values()
    rows: list[Row] = [
        {"contender": name, "seconds_per_round": s, "times_simulate": s / own} for name, s in seconds.items()
    ]
    rows[-1]["times_sum"] = both / (alone + own)
    return rows


def time_simulate(experiment: Experiment) -> float:
    """Return the median seconds of a round of `aircomp simulate`, evaluation included."""
    ends: list[float] = []
    simulate(experiment, on_round=lambda record, exchange: ends.append(time.perf_counter()))
    return _median_gap(ends)


def time_flower(experiment: Experiment) -> dict[str, float]:
    """Return the median seconds of a round of Flower's simulation, with plain FedAvg and over our uplink."""
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from aircomp.adapters.flower import UplinkStrategy, uplink_mod

    logging.getLogger("flwr").setLevel(logging.ERROR)
    ends: dict[str, list[float]] = {"Flower alone": [], "Flower with our uplink": []}
    server, client = ServerApp(), ClientApp(mods=[uplink_mod])
    client.train()(train_client)

    @server.main()
    def main(grid: Any, context: Any) -> None:  # Any: Flower's types are not at hand without Flower
        total = experiment.devices.total
        selection = FedAvg(fraction_evaluate=0.0, min_train_nodes=total, min_available_nodes=total)
        strategies = [selection, UplinkStrategy(selection, _uplink(experiment), _base_station(experiment))]
        for strategy, times in zip(strategies, ends.values(), strict=True):
            _start(strategy, grid, experiment, times)

    # a Ray of its own: without the address it would join any cluster that runs on this machine
    backend = {
        "init_args": {"address": "local", "num_cpus": experiment.workers},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server, client, experiment.devices.total, backend_config=backend)  # pyright: ignore[reportArgumentType]
    return {name: _median_gap(times) for name, times in ends.items()}


def _start(strategy: Any, grid: Any, experiment: Experiment, ends: list[float]) -> None:
    from flwr.app import ArrayRecord, ConfigRecord

    data, trainer = _workload(experiment.model_dump_json())
    module = models.build(experiment.model, data.num_classes, 1, rng=rngs.generator(experiment.seed, "model"))

    def finish(server_round: int, arrays: ArrayRecord) -> None:
        trainer.model.module.load_state_dict(arrays.to_torch_state_dict())
        evaluate(trainer.model.module, data)
        if server_round > 0:
            ends.append(time.perf_counter())

    strategy.start(
        grid,
        ArrayRecord(module.state_dict()),
        num_rounds=experiment.rounds,
        train_config=ConfigRecord({SETTINGS: experiment.model_dump_json()}),
        evaluate_fn=finish,
    )


def train_client(message: Any, context: Any) -> Any:
    """Train as a Flower client: arrays in, arrays out."""
    from flwr.app import Message, MetricRecord, RecordDict

    config = message.content["config"]
    _, trainer = _workload(str(config[SETTINGS]))
    device = int(context.node_config["partition-id"])
    arrays = _train(trainer, int(config["server-round"]), device, message.content["arrays"])
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


def _train(trainer: Trainer, server_round: int, device: int, arrays: Any) -> Any:
    from flwr.app import ArrayRecord

    model = trainer.model
    model.module.load_state_dict(arrays.to_torch_state_dict())
    with one_thread():
        trainer.run(Task(server_round - 1, device), model.weights.clone(), model.read_buffers())
    return ArrayRecord(model.module.state_dict())


def _base_station(experiment: Experiment) -> Callable[[int, Any], Any]:
    _, trainer = _workload(experiment.model_dump_json())
    return lambda server_round, arrays: _train(trainer, server_round, BASE_STATION, arrays)


def _uplink(experiment: Experiment) -> Any:
    _, trainer = _workload(experiment.model_dump_json())
    return make_uplink(
        experiment.uplink,
        quantize=experiment.quantize,
        encode=experiment.encode,
        channel=experiment.channel,
        seed=experiment.seed,
        slot_layers=trainer.model.slot_layers(experiment.quantize.fragment_length),
    )


@lru_cache(maxsize=1)
def _workload(settings: str) -> tuple[ImageData, Trainer]:
    """Build data and trainer once in each process."""
    experiment = Experiment.model_validate_json(settings)
    data = load(experiment.data.name, None)
    module = models.build(experiment.model, data.num_classes, 1, rng=rngs.generator(experiment.seed, "model"))
    partition = split(
        data.train_labels,
        experiment.devices.total,
        experiment.partition,
        rng=rngs.generator(experiment.seed, "partition"),
    )
    return data, Trainer(module, data, partition, experiment.local, seed=experiment.seed)


def _median_gap(ends: list[float]) -> float:
    """Return the median time between the ends of two rounds: the first round, which warms up, has no gap."""
    return statistics.median(after - before for before, after in itertools.pairwise(ends))
