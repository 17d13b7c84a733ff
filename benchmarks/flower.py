"""What does a round cost under Flower? The same work by `aircomp simulate`, by Flower alone, and by Flower with us.

Flower's simulation engine costs what it costs. With our uplink a round should take no longer than a round of Flower's
and our part of it, one after the other: the base station's training, then the stages of `aircomp simulate` but for the
devices' training. The three take turns, a round each, so that a machine which is busy with other things is so for all.
"""

import logging
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from typing import Any

from aircomp.channel.base import make_channel
from aircomp.common.results import Row
from aircomp.common.threads import one_thread
from aircomp.data.images import ImageData, load
from aircomp.engines import ray as ray_executor
from aircomp.engines.trainer import BASE_STATION, Task, Trainer
from aircomp.errors import AirCompError
from aircomp.federation.configure import configure
from aircomp.federation.evaluate import evaluate
from aircomp.federation.experiment import Experiment
from aircomp.federation.simulate import build_model, holders_of, make_link, partition_of, simulate
from aircomp.schemes.base import Scheme

SETTINGS, ROUND = "experiment", "round"
"""Keys of the round's configuration under which clients find what to do."""
ANSWERED = "answered"
"""Metric of a round under Flower: how many clients answered."""

Seconds = dict[str, float]
"""Of a round, and of stages in it."""


def bench_flower(rounds: int, devices: int, workers: int) -> list[Row]:
    """Return seconds per round of the three contenders: medians without the first round."""
    for name, value in ({"FLWR_TELEMETRY_ENABLED": "0"} | ray_executor.ENVIRONMENT).items():
        os.environ.setdefault(name, value)
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
    measured = time_rounds(experiment)
    own, alone, both = (_medians(timed[1:]) for timed in measured.values())
    rows: list[Row] = [
        {"contender": name, "seconds_per_round": s["round"], "times_simulate": s["round"] / own["round"]}
        for name, s in zip(measured, (own, alone, both), strict=True)
    ]
    our_part = both["base station"] + own["uplink"] + own["server"] + own["measure"]
    rows[-1] |= {"our_part_seconds": our_part, "times_sum": both["round"] / (alone["round"] + our_part)}
    return rows


def _medians(timed: list[Seconds]) -> Seconds:
    return {stage: statistics.median(seconds[stage] for seconds in timed) for stage in timed[0]}


def time_rounds(experiment: Experiment) -> dict[str, list[Seconds]]:
    """Return the seconds of each round of `aircomp simulate`, of Flower's with plain FedAvg and with our uplink."""
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from aircomp.adapters.flower import uplink_mod

    logging.getLogger("flwr").setLevel(logging.ERROR)
    server, client = ServerApp(), ClientApp(mods=[uplink_mod])
    client.train()(train_client)
    measured: dict[str, list[Seconds]] = {}

    @server.main()
    def main(grid: Any, context: Any) -> None:  # Any: Flower's types are not at hand without Flower
        with simulate_in_turns(experiment) as next_round:
            contenders = {"aircomp simulate": next_round, **flower_in_turns(experiment, grid)}
            for round_index in range(experiment.rounds):
                for name, run in contenders.items():
                    measured.setdefault(name, []).append(run(round_index))

    # a Ray of its own: without the address it would join any cluster that runs on this machine
    backend = {
        "init_args": {"address": "local", "num_cpus": experiment.workers, "log_to_driver": False},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server, client, experiment.devices.total, backend_config=backend)  # pyright: ignore[reportArgumentType]
    return measured


@contextmanager
def simulate_in_turns(experiment: Experiment) -> Iterator[Callable[[int], Seconds]]:
    """Yield a function that lets `aircomp simulate` run its next round and returns the seconds.

    It has a process of its own, because it forks, which is not safe beside Flower's threads.
    """
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=_simulate, args=(its, experiment.model_dump_json()))
    process.start()
    its.close()  # so that we notice when the process has gone

    def next_round(round_index: int) -> Seconds:
        try:
            ours.send(round_index)
            return ours.recv()
        except (EOFError, BrokenPipeError):
            raise AirCompError("`aircomp simulate` died in its turn; its message is above") from None

    try:
        yield next_round
    finally:
        ours.close()
        process.terminate()
        process.join()


def _simulate(connection: Connection, settings: str) -> None:
    begun = 0.0

    def take_turn(record: dict[str, Any] | None, exchange: Any) -> None:
        nonlocal begun
        if record is not None:
            connection.send({"round": time.perf_counter() - begun, **record["seconds"]})
        connection.recv()
        begun = time.perf_counter()

    take_turn(None, None)
    simulate(Experiment.model_validate_json(settings), on_round=take_turn)


def flower_in_turns(experiment: Experiment, grid: Any) -> dict[str, Callable[[int], Seconds]]:
    """Return a function for each of Flower's contenders that runs a round and returns the seconds."""
    from flwr.serverapp.strategy import FedAvg

    from aircomp.adapters.flower import UplinkStrategy

    total = experiment.devices.total
    selection = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=total, min_available_nodes=total, train_metrics_aggr_fn=_count
    )
    base_station = BaseStation(experiment)
    over_the_air = UplinkStrategy(
        selection, _uplink(experiment), base_station, channel=make_channel(experiment.channel, experiment.power)
    )
    return {
        "Flower alone": partial(_run_flower, selection, grid, experiment),
        "Flower with our uplink": lambda round_index: {
            **_run_flower(over_the_air, grid, experiment, round_index),
            "base station": base_station.seconds,
        },
    }


def _run_flower(strategy: Any, grid: Any, experiment: Experiment, round_index: int) -> Seconds:
    from flwr.app import ArrayRecord, ConfigRecord

    data, trainer = _workload(experiment.model_dump_json())
    ends: list[float] = []

    def finish(server_round: int, arrays: ArrayRecord) -> None:
        trainer.model.module.load_state_dict(arrays.to_torch_state_dict())
        evaluate(trainer.model.module, data)
        ends.append(time.perf_counter())

    result = strategy.start(
        grid,
        ArrayRecord(trainer.model.module.state_dict()),
        num_rounds=1,
        train_config=ConfigRecord({SETTINGS: experiment.model_dump_json(), ROUND: round_index}),
        evaluate_fn=finish,
    )
    answered = result.train_metrics_clientapp.get(1, {}).get(ANSWERED, 0)
    if answered != experiment.devices.total:  # alone, Flower goes on without those that failed, and with less to do
        raise AirCompError(f"{answered} of {experiment.devices.total} clients answered; Flower's log above says why")
    before, after = ends  # evaluated once before the round
    return {"round": after - before}


def _count(contents: list[Any], weighted_by_key: str) -> Any:
    from flwr.app import MetricRecord

    return MetricRecord({ANSWERED: len(contents)})


def train_client(message: Any, context: Any) -> Any:
    """Train as a Flower client: arrays in, arrays out."""
    from flwr.app import Message, MetricRecord, RecordDict

    config = message.content["config"]
    _, trainer = _workload(str(config[SETTINGS]))
    device = int(context.node_config["partition-id"])
    arrays = _train(trainer, int(config[ROUND]), device, message.content["arrays"])
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)


def _train(trainer: Trainer, round_index: int, device: int, arrays: Any) -> Any:
    from flwr.app import ArrayRecord

    model = trainer.model
    model.module.load_state_dict(arrays.to_torch_state_dict())
    with one_thread():
        trainer.run(Task(round_index, device), model.weights.clone(), model.read_buffers())
    return ArrayRecord(model.module.state_dict())


class BaseStation:
    """Trains the base station under Flower, and tells how long the last time took."""

    def __init__(self, experiment: Experiment):
        _, self.trainer = _workload(experiment.model_dump_json())
        self.seconds = 0.0

    def __call__(self, server_round: int, arrays: Any) -> Any:
        """Return the trained arrays."""
        begun = time.perf_counter()
        trained = _train(self.trainer, server_round - 1, BASE_STATION, arrays)
        self.seconds = time.perf_counter() - begun
        return trained


def _uplink(experiment: Experiment) -> Scheme:
    _, trainer = _workload(experiment.model_dump_json())
    layers = trainer.model.slot_layers(experiment.fragment_length)
    return make_link(experiment, layers, shapes=trainer.model.layer_shapes).scheme


@lru_cache(maxsize=1)
def _workload(settings: str) -> tuple[ImageData, Trainer]:
    """Build data and trainer once in each process."""
    experiment = Experiment.model_validate_json(settings)
    data = load(experiment.data.name, None)
    holders = holders_of(experiment, data, partition_of(experiment, data))
    return data, Trainer(build_model(experiment, data), holders, experiment.local, seed=experiment.seed)
