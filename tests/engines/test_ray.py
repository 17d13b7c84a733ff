"""Ray for real: no mocks, a cluster of several nodes on this machine in the slow tests, and no process left behind."""

import ctypes
import gc
import importlib.util
import logging
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from aircomp.engines import ray as ray_executor
from aircomp.engines.ray import RayExecutor, map_jobs
from aircomp.engines.trainer import SerialExecutor, Task, make_executor
from aircomp.errors import AirCompError, ConfigError, TrainingDiverged
from aircomp.federation.simulate import simulate
from helpers.processes import descendants
from helpers.records import without_times

pytestmark = [
    # Ray opens /dev/null for each process it starts and does not wait for all of them to end
    pytest.mark.filterwarnings("ignore:unclosed file .*/dev/null:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra"),
]

PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def nothing_survives(monkeypatch):
    """See that every process of the test is gone after it, those whose parent died included."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans become our children instead of vanishing from sight
    before = descendants()
    yield
    deadline = time.monotonic() + 20  # workers end by themselves when they miss their raylet
    while (left := descendants() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in left]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    gc.collect()  # while Ray's warnings are still expected
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0)
    assert commands == []


def same_bits(one, two):
    assert without_times(one.metrics) == without_times(two.metrics)
    assert torch.equal(one.state.weights, two.state.weights)
    assert one.state.memories.keys() == two.state.memories.keys()
    assert all(torch.equal(one.state.memories[d], two.state.memories[d]) for d in one.state.memories)


@pytest.mark.engines
def test_two_ray_workers_give_the_bits_of_one_process_and_leave_nothing_behind(quick, digits, nothing_survives):
    import ray

    experiment = quick.changed(uplink="perfect", rounds=2)
    serial = simulate(experiment, dataset=digits)
    same_bits(serial, simulate(experiment.changed(engine="ray", workers=2), dataset=digits))
    assert not ray.is_initialized()


def test_a_missing_ray_names_the_extra(monkeypatch, trainer):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"not installed; run pip install 'aircomp\[ray\]'"):
        make_executor(trainer, "ray", 2)


@pytest.mark.parametrize("address", ["here", "ray://host:10001", "host:port"])
def test_an_address_that_is_none_is_told_what_one_looks_like(address, trainer):
    with pytest.raises(ConfigError, match="expected HOST:PORT"):
        make_executor(trainer, "ray", 2, address)


def test_an_address_where_nobody_answers_is_told_at_once(trainer):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # bound and never listened on: certainly refused
        with pytest.raises(ConfigError, match=r"no Ray cluster answers at 127.0.0.1:\d+ .*start one with ray start"):
            make_executor(trainer, "ray", 2, f"127.0.0.1:{listener.getsockname()[1]}")


def test_the_address_does_not_change_what_a_run_is(quick):
    assert quick.identity == quick.changed(engine="ray", ray_address="host:6379").identity


@pytest.fixture
def cluster(nothing_survives, monkeypatch):
    """Return a Ray cluster whose nodes are processes of this machine, each with ports of its own; the head is empty."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.engines
@pytest.mark.slow
def test_a_node_killed_in_the_middle_of_a_round_does_not_change_a_bit(quick, digits, cluster, monkeypatch, caplog):
    import ray

    victim, _ = cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    experiment = quick.changed(uplink="perfect", **{"local.steps": 400, "local.batch_size": 16})
    serial = simulate(experiment, dataset=digits)
    assert serial.metrics[1]["num_active"] >= 2  # three tasks of more than a second on two workers

    def kill():
        time.sleep(1.0)
        cluster.remove_node(victim, allow_graceful=False)

    def strike_in_round_two(record, _):
        if record["round"] == 1:
            threading.Thread(target=kill).start()

    with caplog.at_level(logging.WARNING, logger="aircomp.engines.ray"):
        killed = simulate(experiment.changed(engine="ray"), dataset=digits, on_round=strike_in_round_two)
    assert "lost its worker and is tried again" in caplog.text
    same_bits(serial, killed)
    assert not ray.is_initialized()
    assert cluster.head_node.any_processes_alive()  # it was not ours to stop


@pytest.mark.engines
@pytest.mark.slow
def test_a_cluster_that_loses_all_its_nodes_ends_in_a_sentence(cluster, trainer, monkeypatch):
    with pytest.raises(ConfigError, match="the Ray cluster has no CPU for a worker"):
        RayExecutor(trainer, 0, cluster.address)
    only = cluster.add_node(num_cpus=1)
    executor = RayExecutor(trainer, 0, cluster.address)
    weights, buffers = trainer.model.weights.clone(), trainer.model.read_buffers()
    executor.map([Task(0, 0)], weights, buffers)
    cluster.remove_node(only, allow_graceful=False)
    monkeypatch.setattr(ray_executor, "START_SECONDS", 5.0)
    with pytest.raises(AirCompError, match="no worker of the Ray cluster was there for 5 s"):
        executor.map([Task(0, 0)], weights, buffers)
    executor.close()


@pytest.fixture
def own_ray(nothing_survives, monkeypatch):
    """Ray as a user may have started it before calling us."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


@pytest.mark.engines
@pytest.mark.slow
def test_errors_keep_their_sentence_and_a_users_own_ray_stays(own_ray, trainer):
    weights, buffers = trainer.model.weights.clone(), trainer.model.read_buffers()
    tasks = [Task(0, device) for device in range(5)]
    executor = RayExecutor(trainer, 2)
    bad = weights.clone()
    bad[5] = float("nan")
    with pytest.raises(
        TrainingDiverged, match=r"^the update of device 3 in round 8 is not finite, first in layer conv1"
    ):
        executor.map([Task(7, 3), *tasks], bad, buffers)
    after_the_error = executor.map(tasks, weights, buffers)
    for one, two in zip(SerialExecutor(trainer).map(tasks, weights, buffers), after_the_error, strict=True):
        assert torch.equal(one.update, two.update)
        assert (one.loss, one.num_samples) == (two.loss, two.num_samples)
    with pytest.raises(ConfigError, match="this process is connected to Ray at"):
        RayExecutor(trainer, 2, "127.0.0.1:1")
    executor.close()
    assert own_ray.is_initialized()


@pytest.mark.engines
@pytest.mark.slow
def test_jobs_whose_worker_dies_are_run_again_and_hopeless_ones_end_in_a_sentence(own_ray, tmp_path):
    def square(number):
        marker = tmp_path / str(number)
        if number == 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 99:
            os.kill(os.getpid(), signal.SIGKILL)
        assert torch.get_num_threads() == 1
        return number**2

    assert dict(map_jobs(square, range(6), workers=2)) == {n: n**2 for n in range(6)}
    assert (tmp_path / "2").exists()
    with pytest.raises(AirCompError, match=r"^job 99 lost its worker 4 times"):
        list(map_jobs(square, [99]))


@pytest.mark.engines
@pytest.mark.slow
def test_a_cluster_that_computes_otherwise_is_told(own_ray, monkeypatch, caplog):
    assert dict(map_jobs(abs, [-1])) == {-1: 1}
    assert not caplog.messages
    monkeypatch.setattr(ray_executor, "arithmetic_identity", lambda: "an abacus")  # in this process alone
    assert dict(map_jobs(abs, [-1])) == {-1: 1}
    assert "and this process with an abacus: who trains which device decides the last bits" in caplog.text
