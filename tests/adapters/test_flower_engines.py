"""The example app and the benchmark in Flower's engines: its simulation, and a SuperLink with SuperNodes on loopback.

Each runs in processes of its own: Ray leaves open files behind, which are errors here. Every wait has an end.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from aircomp.common.rng import generator
from aircomp.engines.worker import follow_parent
from helpers.processes import descendants

pytest.importorskip("flwr", reason="needs Flower: pip install 'aircomp[flower]'")
pytest.importorskip("ray", reason="needs Flower's simulation: pip install 'aircomp[flower]'")
pytestmark = [pytest.mark.engines, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).with_name("parity_app")
TOOLS = Path(sys.executable).parent

ENGINE = """
import json, sys
from pathlib import Path
import flwr.simulation
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from safetensors.torch import save_file
import air_digits as example

out = Path(sys.argv[1])

def made(uplink, rounds):
    server = ServerApp()

    @server.main()
    def main(grid, context):
        def look(server_round, arrays):
            save_file(arrays.to_torch_state_dict(), out / f"{uplink}-{server_round}.safetensors")
            rounds[server_round] = dict(example.test(server_round, arrays))

        example.trainer.cache_clear()
        initial = ArrayRecord(example.trainer().model.module.state_dict())
        example.make_strategy(uplink).start(grid, initial, num_rounds=3, evaluate_fn=look)

    return server

def run(server, devices):
    backend = {"init_args": {"address": "local", "num_cpus": 2}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    flwr.simulation.run_simulation(server, example.client, devices, backend_config=backend)

for uplink in ("gamp", "tdma-topk"):
    rounds = {}
    run(made(uplink, rounds), example.DEVICES)
    (out / f"{uplink}.json").write_text(json.dumps(rounds))
try:
    run(example.server, example.DEVICES + 1)  # nobody gave the last one data
except Exception as error:
    (out / "error.txt").write_text(f"{type(error).__name__}: {error}")
"""


def environment(**more):
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    offline = {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"  # where Flower looks for its own tools
    return {**os.environ, **quiet, **offline, "PATH": path, **{name: str(value) for name, value in more.items()}}


def run(*command, env, seconds):
    return subprocess.run(
        [str(c) for c in command], env=env, capture_output=True, text=True, check=False, timeout=seconds
    )


# ------------------------------------------------------------------------------------------------------- simulation


@pytest.fixture(scope="module")
def engine_run(tmp_path_factory):
    """Run the example with Flower's simulation engine; return the directory with what came of it."""
    out = tmp_path_factory.mktemp("engine")
    path = os.pathsep.join(filter(None, [str(EXAMPLE), os.environ.get("PYTHONPATH")]))
    done = run(sys.executable, "-c", ENGINE, out, env=environment(PYTHONPATH=path), seconds=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return out


@pytest.mark.parametrize("uplink", ["gamp", "tdma-topk"])  # by codewords, and whole with what arrived told afterwards
def test_flowers_simulation_and_ours_aggregate_the_same_updates(
    example, by_simulate, assert_same_updates, engine_run, uplink
):
    rounds = json.loads((engine_run / f"{uplink}.json").read_text())
    names = list(example.trainer().model.module.state_dict())
    states = [load_file(engine_run / f"{uplink}-{r}.safetensors") for r in range(4)]
    updates, accuracies = by_simulate(uplink)
    assert_same_updates([torch.cat([state[name].flatten() for name in names]) for state in states], updates)
    assert [rounds[str(r)]["test_accuracy"] for r in (1, 2, 3)] == accuracies


def test_a_client_that_fails_in_flowers_simulation_ends_the_run_with_its_name(engine_run):
    error = (engine_run / "error.txt").read_text()
    assert error.startswith("ClientFailed: 1 of 3 clients failed in round 1: ")
    assert "client 2 (node " in error
    assert "IndexError" in error
    assert "\n" not in error


def test_the_benchmark_shows_all_three_side_by_side():
    env = environment(PYTHONPATH=f"{ROOT}:{ROOT / 'tests'}")
    done = run(sys.executable, "-m", "benchmarks", "flower", "--rounds", 3, env=env, seconds=600)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("aircomp simulate", "Flower alone", "Flower with our uplink"))


# ------------------------------------------------------------------------------------------------- real processes


class Federation:
    """A SuperLink and its SuperNodes on loopback."""

    def __init__(self, home):
        self.home, self.running = home, []
        self.env, self.port = environment(FLWR_HOME=home), free_port()
        link = (
            f'[superlink]\ndefault = "loop"\n\n[superlink.loop]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        )
        (home / "config.toml").write_text(link)

    def start(self, name, said, *options):
        """Start a process and wait until it has said something."""
        log = self.home / f"{len(self.running)}.log"
        command = [str(TOOLS / name), "--insecure", "--host", "127.0.0.1", *map(str, options)]
        with log.open("w") as file:
            process = subprocess.Popen(
                command,
                env=self.env,
                stdout=file,
                stderr=file,
                preexec_fn=follow_parent,  # should somebody kill us
            )
        self.running.append(process)
        deadline = time.monotonic() + 120
        while said not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.5)

    def start_link(self):
        self.start("flower-superlink", "Uvicorn running", "--port", self.port)

    def start_node(self, partition):
        config = f"partition-id={partition} num-partitions=2"
        to = f"127.0.0.1:{self.port}"
        self.start(
            "flower-supernode", "SuperNode ID", "--superlink", to, "--port", free_port(), "--node-config", config
        )

    def run_example(self, saved):
        """Run the example to its end and return what was logged."""
        config = f'save-to="{saved}"'
        done = run(TOOLS / "flwr", "run", EXAMPLE, "loop", "--stream", "-c", config, env=self.env, seconds=600)
        return done.stdout + done.stderr

    def end(self):
        for process in reversed(self.running):
            everyone = [process.pid, *descendants(process.pid)]
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            for pid in everyone:  # Flower leaves an app behind that was still running
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait(20)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    federation = Federation(tmp_path_factory.mktemp("superlink"))
    try:
        federation.start_link()
        federation.start_node(0)
        federation.start_node(1)
        yield federation
    finally:
        federation.end()


def test_a_superlink_and_two_supernodes_reach_the_model_of_simulate(example, by_simulate, federation, tmp_path):
    logged = federation.run_example(tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").exists(), logged
    state = load_file(tmp_path / "model.safetensors")
    initial = example.models.build(example.SETTINGS.model, 10, 1, rng=generator(0, "model"))
    assert set(state) == set(dict(initial.named_parameters()))
    moved_by = torch.cat([(state[n] - p.detach()).flatten() for n, p in initial.named_parameters()])
    updates, _ = by_simulate()
    # three updates of 1e-6 each
    torch.testing.assert_close(moved_by, sum(updates), rtol=0, atol=3e-6)


def test_a_supernode_that_joins_and_fails_ends_the_run_with_its_name(federation, tmp_path):
    federation.start_node(2)  # nobody gave it data
    logged = federation.run_example(tmp_path / "model.safetensors")
    assert "1 of 3 clients failed in round 1" in logged
    assert "client 2 (node " in logged
    assert not (tmp_path / "model.safetensors").exists()
