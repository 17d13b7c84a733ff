"""The adapter in Flower's hands: a loop in this process, its simulation engine, and (slow) real SuperNodes.

Flower's engine runs in a process of its own: Ray leaves open files behind, which are errors here.
"""

import contextlib
import importlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # before flwr is imported, which reads it once

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Flower's own imports have to say
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

import aircomp
from aircomp.adapters.flower import ClientFailed, UplinkStrategy, uplink_mod
from aircomp.adapters.flower_records import CODEBOOK, MEMORY, SENT
from aircomp.artefact import read_json
from aircomp.channel.snr import ChannelSettings
from aircomp.cli import main
from aircomp.device.feedback import FeedbackSettings
from aircomp.encode.codebook import EncodeSettings
from aircomp.errors import ConfigError
from aircomp.fl.simulate import simulate
from aircomp.quantize.codebook import QuantizeSettings
from aircomp.quantize.fragment import join
from aircomp.quantize.nearest import lookup
from aircomp.rng import generator
from aircomp.server.step import ServerSettings
from aircomp.uplinks.base import Encoded, aggregate_reception
from aircomp.uplinks.ideal import IdealUplink

# Flower's simulation takes a minute or two to run all of these; they belong to the slow set until they take less
pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_app"
SHAPES = {"weight": (6, 20), "bias": (7,)}
NUM_PARAMS = 127


class LoopGrid(Grid):
    """Flower's grid as a loop in this process; as in Flower, what a client raises becomes a reply."""

    def __init__(self, app, num_nodes):
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.app, self.contexts, self.gone, self.replies = app, {}, set(), []
        for partition in range(num_nodes):
            self.join(partition)

    def join(self, partition):
        config = {"partition-id": partition}
        self.contexts[100 + partition] = Context(1, 100 + partition, config, RecordDict(), {})

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        replies = [self._reply(m) for m in reversed(list(messages))]  # any order may come
        self.replies += replies
        return replies

    def _reply(self, message):
        node = message.metadata.dst_node_id
        if node in self.gone:
            reply = Message(Error(ErrorCode.NODE_UNAVAILABLE, "Node Unavailable"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = 1  # the SuperLink answers in its own name
            return reply
        try:
            return self.app(message, self.contexts[node])
        except Exception as error:
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error)}:<'{error}'>"), reply_to=message)

    def run(self):
        raise NotImplementedError

    set_run = create_message = push_messages = pull_messages = run


def initial_arrays(shapes=SHAPES):
    return ArrayRecord({name: Array(np.zeros(shape, np.float32)) for name, shape in shapes.items()})


def update_of(server_round, device, num_params=NUM_PARAMS):
    common = torch.randn(num_params, generator=generator(0, "common", server_round))
    return 0.1 * common + 0.02 * torch.randn(num_params, generator=generator(0, "own", server_round, device))


def flat(arrays):
    return torch.cat([torch.from_numpy(a.numpy()).flatten() for a in arrays.values()])


def moved(arrays, update):
    parts = update.split([a.numpy().size for a in arrays.values()])
    return ArrayRecord(
        {n: Array(a.numpy() + p.numpy().reshape(a.shape)) for (n, a), p in zip(arrays.items(), parts, strict=True)}
    )


def make_app(mods=(uplink_mod,), train=None):
    app = ClientApp(mods=list(mods))

    @app.train()
    def train_device(message, context):
        server_round, device = message.content["config"]["server-round"], context.node_config["partition-id"]
        arrays = message.content["arrays"]
        trained = train(arrays, device) if train else moved(arrays, update_of(server_round, device))
        metrics = MetricRecord({"num-examples": 1 + device, "loss": float(device)})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        if context.node_config["partition-id"] == 2:
            raise ValueError("no test data")
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


def make_uplink(name, num_codewords=16, codeword_length=32):
    return aircomp.make_uplink(
        name,
        quantize=QuantizeSettings(fragment_length=5, num_codewords=num_codewords),
        encode=EncodeSettings(codeword_length=codeword_length),
        channel=ChannelSettings(snr_db=20),
    )


def make_strategy(uplink, *, fraction_train=1.0, fraction_evaluate=0.0, **options):
    selection = FedAvg(
        fraction_train=fraction_train, fraction_evaluate=fraction_evaluate, min_train_nodes=1, min_available_nodes=1
    )
    base = lambda server_round, arrays: moved(arrays, update_of(server_round, 99))  # noqa: E731
    return UplinkStrategy(selection, make_uplink(uplink) if isinstance(uplink, str) else uplink, base, **options)


def start(strategy, grid, rounds=1, arrays=None):
    return strategy.start(grid, arrays or initial_arrays(), num_rounds=rounds)


# ------------------------------------------------------------------------------------------------------- the device


def test_a_reply_carries_one_byte_a_fragment_and_the_memory_stays():
    grid = LoopGrid(make_app(), 1)
    start(make_strategy("perfect"), grid)
    sent = grid.replies[0].content["arrays"]
    assert list(sent) == [SENT]
    assert sent[SENT].numpy().dtype == np.uint8
    assert sent[SENT].numpy().shape == (26,)  # 127 parameters in fragments of 5
    assert grid.contexts[100].state[MEMORY]["memory"].numpy().shape == (NUM_PARAMS,)


def test_beyond_256_codewords_an_index_takes_two_bytes():
    shapes = {"weight": (300, 5)}
    app = make_app(train=lambda arrays, device: moved(arrays, update_of(1, device, 1500)))
    strategy = UplinkStrategy(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=1),
        make_uplink("perfect", num_codewords=300, codeword_length=256),
        lambda server_round, arrays: moved(arrays, update_of(1, 99, 1500)),
    )
    grid = LoopGrid(app, 2)
    start(strategy, grid, arrays=initial_arrays(shapes))
    sent = grid.replies[0].content["arrays"][SENT].numpy()
    assert sent.dtype == np.int16
    assert sent.max() > 255


def test_error_feedback_telescopes_over_rounds(as_in_production):
    codebooks = []

    def spy(message, context, call_next):
        codebooks.append(torch.from_numpy(message.content[CODEBOOK]["codebook"].numpy()))
        return call_next(message, context)

    grid, told = LoopGrid(make_app([spy, uplink_mod]), 1), torch.zeros(NUM_PARAMS)
    strategy, arrays = make_strategy("perfect"), initial_arrays()
    for server_round in (1, 2, 3):
        replies = grid.send_and_receive(strategy.configure_train(server_round, arrays, ConfigRecord(), grid))
        indices = torch.from_numpy(replies[0].content["arrays"][SENT].numpy())
        told += join(lookup(indices, codebooks[-1]), NUM_PARAMS)
        arrays, _ = strategy.aggregate_train(server_round, replies)
    wanted = sum(update_of(r, 0) for r in (1, 2, 3))
    memory = torch.from_numpy(grid.contexts[100].state[MEMORY]["memory"].numpy())
    assert memory.norm() > 0.1  # much was left out
    # weights of order one are moved and subtracted again: a few units in the last place of float32
    torch.testing.assert_close(told + memory, wanted, rtol=0, atol=2e-6)


def test_without_feedback_nothing_is_kept():
    grid = LoopGrid(make_app(), 2)
    result = start(make_strategy("perfect", feedback=FeedbackSettings(kind="off")), grid, rounds=2)
    assert MEMORY not in grid.contexts[100].state
    assert result.train_metrics_clientapp[2]["uplink.feedback_ratio"] == 0


def test_the_training_sees_the_message_as_if_we_were_not_there():
    seen = []

    def look(message, context, call_next):
        seen.append(set(message.content))
        return call_next(message, context)

    start(make_strategy("perfect"), LoopGrid(make_app([uplink_mod, look]), 1))
    assert seen == [{"arrays", "config"}]


def test_a_strategy_of_flowers_own_works_with_the_mod_in_place():
    grid = LoopGrid(make_app(), 2)
    result = start(FedAvg(fraction_evaluate=0.0), grid)
    wanted = (update_of(1, 0) + 2 * update_of(1, 1)) / 3  # weighted by examples
    torch.testing.assert_close(flat(result.arrays), wanted, rtol=0, atol=1e-6)


# ------------------------------------------------------------------------------------------------------- the server


def test_the_ideal_uplink_gives_the_mean_of_all_clients():
    result = start(make_strategy("ideal"), LoopGrid(make_app(), 3))
    wanted = torch.stack([update_of(1, d) for d in range(3)]).mean(dim=0)
    torch.testing.assert_close(flat(result.arrays), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("uplink", ["perfect", "amp-da", "gamp"])
@pytest.mark.parametrize("rule", ["mean", "trimmed-mean", lambda counts, codewords: codewords[counts.argmax(dim=1)]])
def test_uplinks_decoders_and_rules_combine_freely(uplink, rule):
    result = start(make_strategy(uplink, aggregator=rule), LoopGrid(make_app(), 4), rounds=2)
    wanted = torch.stack([update_of(1, d) + update_of(2, d) for d in range(4)]).mean(dim=0)
    error = (flat(result.arrays) - wanted).norm() / wanted.norm()
    assert error < 0.9  # coarse codebooks leave much out, but the model moves the right way: 1.0 is standing still
    assert result.train_metrics_clientapp[2]["uplink.num_active"] == 4


def test_every_optimiser_keeps_its_state_between_rounds():
    momentum = ServerSettings(kind="fedavgm", momentum=0.5)
    result = start(make_strategy("ideal", server=momentum), LoopGrid(make_app(), 2), rounds=2)
    first, second = (torch.stack([update_of(r, d) for d in range(2)]).mean(dim=0) for r in (1, 2))
    torch.testing.assert_close(flat(result.arrays), first + (0.5 * first + second), rtol=0, atol=1e-6)


def test_the_wrapped_strategy_selects():
    grid = LoopGrid(make_app(), 4)
    result = start(make_strategy("gamp", fraction_train=0.5), grid)
    assert len(grid.replies) == 2
    assert result.train_metrics_clientapp[1]["uplink.num_active"] == 2


def test_clients_metrics_are_aggregated_as_the_wrapped_strategy_does():
    result = start(make_strategy("gamp"), LoopGrid(make_app(), 2))
    metrics = result.train_metrics_clientapp[1]
    assert metrics["loss"] == pytest.approx(2 / 3)  # 0 with one example, 1 with two
    assert metrics["uplink.accuracy"] > 0.5
    assert metrics["uplink.num_active_hat"] == pytest.approx(2, abs=0.5)


def test_statistics_of_batchnorm_travel_beside_the_radio():
    torch_rng = generator(0, "buffers")
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    means = torch.randn(3, 6, generator=torch_rng)

    def train(arrays, device):
        state = arrays.to_torch_state_dict()
        state["1.running_mean"] = means[device]
        state["1.num_batches_tracked"] += 5
        return ArrayRecord(state)

    strategy = UplinkStrategy(
        FedAvg(fraction_evaluate=0.0),
        make_uplink("ideal"),
        lambda server_round, arrays: arrays,
        parameters=[name for name, _ in module.named_parameters()],
    )
    initial = ArrayRecord(module.state_dict())
    result = start(strategy, LoopGrid(make_app(train=train), 3), arrays=initial)
    assert list(result.arrays) == list(initial)
    state = result.arrays.to_torch_state_dict()
    torch.testing.assert_close(state["1.running_mean"], means.mean(dim=0), rtol=0, atol=1e-6)
    torch.testing.assert_close(state["0.weight"], module[0].weight.detach(), rtol=0, atol=0)
    assert state["1.num_batches_tracked"] == 0


def test_an_integer_array_on_the_radio_is_refused_with_the_remedy():
    arrays = ArrayRecord(nn.BatchNorm1d(6).state_dict())
    with pytest.raises(ConfigError, match=r"'num_batches_tracked' holds int64.*parameters=\[name for"):
        start(make_strategy("ideal"), LoopGrid(make_app(), 2), arrays=arrays)


class Fading(IdealUplink):
    """An uplink without a codebook that loses the last device's message."""

    name = "fading"

    def encode(self, messages, announced):
        delivered = torch.arange(len(messages)) < len(messages) - 1
        return Encoded(messages[delivered], messages, delivered)


def test_an_uplink_that_loses_without_a_codebook_needs_feedback_off():
    with pytest.raises(ConfigError, match=r"'fading' leaves out a part .* use feedback=FeedbackSettings"):
        start(make_strategy(Fading()), LoopGrid(make_app(), 2))
    result = start(make_strategy(Fading(), feedback=FeedbackSettings(kind="off")), LoopGrid(make_app(), 2))
    torch.testing.assert_close(flat(result.arrays), update_of(1, 0), rtol=0, atol=1e-6)


# ----------------------------------------------------------------------------------- clients that fail, leave, join


def broken(how):
    def train(arrays, device):
        if device != 1:
            return moved(arrays, update_of(1, device))
        match how:
            case "raises":
                raise RuntimeError("the disk is full")
            case "shape":
                return initial_arrays({"weight": (6, 19), "bias": (7,)})
            case "names":
                return initial_arrays({"weight": (6, 20)})
            case "nan":
                return ArrayRecord({n: Array(np.full(s, np.nan, np.float32)) for n, s in SHAPES.items()})

    return train


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("raises", "RuntimeError: the disk is full"),
        ("shape", r"the reply's array 'weight' has shape \(6, 19\); expected \(6, 20\)"),
        ("names", r"only in one of them: bias"),
        ("nan", "fragments"),
    ],
)
def test_a_failed_client_ends_the_run_with_its_name(as_in_production, how, sentence):
    with pytest.raises(ClientFailed, match=rf"1 of 3 clients failed in round 1: .*client 1 \(node 101\).*{sentence}"):
        start(make_strategy("gamp"), LoopGrid(make_app(train=broken(how)), 3))


def test_a_client_without_the_mod_is_named():
    grid = LoopGrid(make_app(mods=()), 2)
    with pytest.raises(ClientFailed, match=r"node 10\d answered without aircomp's mod; .*mods=\[uplink_mod\]"):
        start(make_strategy("gamp"), grid)


@pytest.mark.parametrize(("uplink", "expected"), [("gamp", "one index below 16"), ("ideal", "127 real numbers")])
def test_a_payload_of_the_wrong_size_is_named(uplink, expected):
    def cut(message, context, call_next):
        reply = call_next(message, context)
        sent = reply.content["arrays"][SENT].numpy()
        reply.content["arrays"] = ArrayRecord({SENT: Array(sent[:-1])})
        return reply

    with pytest.raises(ClientFailed, match=rf"client 0 \(node 100\) sent .* expected {expected}"):
        start(make_strategy(uplink), LoopGrid(make_app([cut, uplink_mod]), 1))


def test_a_failure_in_evaluation_raises_too():
    with pytest.raises(ClientFailed, match=r"client 2 \(node 102\).*no test data"):
        start(make_strategy("gamp", fraction_evaluate=1.0), LoopGrid(make_app(), 3))


def test_a_client_that_leaves_is_missed_by_name_and_counted(caplog):
    grid, strategy = LoopGrid(make_app(), 3), make_strategy("ideal")
    start(strategy, grid)
    grid.gone = {101}
    with caplog.at_level(logging.WARNING, logger="aircomp"):
        result = start(strategy, grid)
    assert "round 1 goes on without client 1 (node 101), gone before the answer" in caplog.text
    metrics = result.train_metrics_clientapp[1]
    assert (metrics["uplink.num_active"], metrics["uplink.num_lost"]) == (2, 1)


def test_a_round_that_nobody_answers_raises():
    grid = LoopGrid(make_app(), 2)
    grid.gone = {100, 101}
    with pytest.raises(ClientFailed, match=r"no client answered in round 1, asked were node 10\d, node 10\d"):
        start(make_strategy("gamp"), grid)


def test_a_client_that_joins_takes_part_in_the_next_round():
    grid, strategy = LoopGrid(make_app(), 2), make_strategy("gamp")
    first = start(strategy, grid)
    grid.join(2)
    second = start(strategy, grid, arrays=first.arrays)
    assert second.train_metrics_clientapp[1]["uplink.num_active"] == 3
    assert MEMORY in grid.contexts[102].state


def test_a_round_without_selected_clients_changes_nothing():
    result = start(make_strategy("gamp", fraction_train=0.0), LoopGrid(make_app(), 2))
    assert not result.train_metrics_clientapp
    assert len(result.arrays) == 0


def test_a_model_that_changes_within_a_run_is_refused(as_in_production):
    grid = LoopGrid(make_app(train=lambda arrays, device: arrays), 2)
    start(make_strategy("perfect"), grid)
    small = initial_arrays({"weight": (2, 20)})
    strategy = UplinkStrategy(
        FedAvg(fraction_evaluate=0.0), make_uplink("perfect"), lambda r, a: moved(a, torch.ones(40))
    )
    with pytest.raises(ClientFailed, match="error memory has 127 entries, the update 40"):
        start(strategy, grid, arrays=small)


# ------------------------------------------------------------------------------------------------------- extras


def run_without_flower(code):
    hidden = "import sys; sys.modules['flwr'] = None\n"  # what an import of a missing package comes to
    return subprocess.run([sys.executable, "-c", hidden + code], capture_output=True, text=True, check=False)


def test_the_core_needs_no_flower_and_the_adapter_says_what_to_install():
    done = run_without_flower("import aircomp, aircomp.adapters\naircomp.simulate\nimport aircomp.adapters.flower")
    assert "MissingExtra: this needs the extra 'flower'" in done.stderr
    assert "pip install 'aircomp[flower]'" in done.stderr


def test_bench_flower_without_flower_is_one_sentence():
    done = run_without_flower("from aircomp.cli import main\nmain(['bench', 'flower'])")
    assert done.returncode == 2
    assert "pip install 'aircomp[flower]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_bench_flower_wants_a_round_after_the_first(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "flower", "--rounds", "1"])
    assert "expected two rounds or more" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- the example and simulate


@pytest.fixture(scope="module")
def example():
    sys.path.insert(0, str(EXAMPLE))
    yield importlib.import_module("air_digits")
    sys.path.remove(str(EXAMPLE))


def by_simulate(uplink="gamp", rounds=3):
    """Return the aggregated update and the test accuracy of each round of the example's experiment."""
    updates, accuracies = [], []

    def look(record, exchange):
        updates.append(aggregate_reception(exchange.reception, "mean", 0.8))
        accuracies.append(record["test_accuracy"])

    settings = {"devices.total": 2, "participation.kind": "fixed", "participation.number": 2, "engine": "serial"}
    simulate("digits", uplink=uplink, rounds=rounds, on_round=look, **settings)
    return updates, accuracies


def assert_same_updates(models, updates):
    """Check the differences of successive models against the aggregated updates."""
    for before, after, update in zip(models[:-1], models[1:], updates, strict=True):
        assert update.abs().max() > 1e-3  # zero would agree with anything that stands still
        torch.testing.assert_close(after - before, update, rtol=0, atol=1e-6)


@pytest.mark.parametrize("uplink", ["ideal", "perfect"])  # gamp below, by the real engine
def test_the_adapter_and_simulate_aggregate_the_same_updates(example, uplink):
    models = []
    example.trainer.cache_clear()  # its model is as the last test left it
    initial = ArrayRecord(example.trainer().model.module.state_dict())
    strategy = example.make_strategy(uplink)
    look = lambda server_round, arrays: models.append(flat(arrays))  # noqa: E731
    strategy.start(LoopGrid(example.client, 2), initial, num_rounds=2, evaluate_fn=look)
    updates, _ = by_simulate(uplink, rounds=2)
    assert_same_updates(models, updates)


def test_the_example_app_is_short_enough_to_copy():
    assert len((EXAMPLE / "air_digits.py").read_text().splitlines()) < 100


ENGINE = """
import json, sys
import flwr.simulation
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from safetensors.torch import save_file
import air_digits as example

server, rounds = ServerApp(), {}

@server.main()
def main(grid, context):
    def look(server_round, arrays):
        save_file(arrays.to_torch_state_dict(), f"{sys.argv[1]}/{server_round}.safetensors")
        rounds[server_round] = dict(example.test(server_round, arrays))

    initial = ArrayRecord(example.trainer().model.module.state_dict())
    example.make_strategy().start(grid, initial, num_rounds=3, evaluate_fn=look)

backend = {"init_args": {"address": "local", "num_cpus": 2}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
flwr.simulation.run_simulation(server, example.client, example.DEVICES, backend_config=backend)
json.dump(rounds, open(f"{sys.argv[1]}/rounds.json", "w"))
"""


def environment(**more):
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    offline = {"FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1"}
    return {**os.environ, **quiet, **offline, **{name: str(value) for name, value in more.items()}}


@pytest.fixture(scope="module")
def engine_run(tmp_path_factory):
    """Run the example with Flower's simulation engine; return the models and accuracies after rounds 0 to 3."""
    out = tmp_path_factory.mktemp("engine")
    command = [sys.executable, "-c", ENGINE, str(out)]
    done = subprocess.run(
        command, env=environment(PYTHONPATH=EXAMPLE), capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rounds = json.loads((out / "rounds.json").read_text())
    names = list(importlib.import_module("air_digits").trainer().model.module.state_dict())
    states = [load_file(out / f"{r}.safetensors") for r in range(4)]
    models = [torch.cat([state[name].flatten() for name in names]) for state in states]
    return models, [rounds[str(r)]["accuracy"] for r in range(4)]


def test_flowers_simulation_and_ours_aggregate_the_same_updates(example, engine_run):
    models, found = engine_run
    updates, accuracies = by_simulate()
    assert_same_updates(models, updates)
    assert found[1:] == accuracies


# ------------------------------------------------------------------------------------------------------- slow


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tool(name):
    return str(Path(sys.executable).parent / name)


@pytest.fixture
def superlink(tmp_path):
    """Start a SuperLink and two SuperNodes on loopback; yield the environment of `flwr`, and end them all."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where Flower looks for its own tools
    env, port = environment(FLWR_HOME=tmp_path / "home", PATH=path), free_port()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        f'[superlink]\ndefault = "loop"\n\n[superlink.loop]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    link = [tool("flower-superlink"), "--insecure", "--host", "127.0.0.1", "--port", str(port)]
    nodes = [
        [
            *[tool("flower-supernode"), "--insecure", "--superlink", f"127.0.0.1:{port}"],
            *["--host", "127.0.0.1", "--port", str(free_port())],
            *["--node-config", f"partition-id={partition} num-partitions=2"],
        ]
        for partition in range(2)
    ]
    running = []
    try:
        for number, command in enumerate([link, *nodes]):
            log = (tmp_path / f"{number}.log").open("w")
            # a session of its own: its subprocesses end with it
            running.append((subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True), log))
        yield env
    finally:
        for process, log in reversed(running):
            os.killpg(process.pid, 15)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
            log.close()


def wait_for(path, seconds):
    """Return the tensors in a file as soon as it is there and whole, or None."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError, SafetensorError):
            return load_file(path)
        time.sleep(1)
    return None


@pytest.mark.slow
def test_a_superlink_and_two_supernodes_reach_the_model_of_simulate(example, superlink, tmp_path):
    saved = tmp_path / "model.safetensors"
    command = [tool("flwr"), "run", str(EXAMPLE), "loop", "--run-config", f'save-to="{saved}"']
    for _ in range(30):  # until the SuperLink listens
        done = subprocess.run(command, env=superlink, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode == 0:
            break
        time.sleep(2)
    assert done.returncode == 0, done.stdout + done.stderr
    state = wait_for(saved, 400)
    assert state is not None, "\n".join(path.read_text()[-3000:] for path in sorted(tmp_path.glob("*.log")))
    initial = example.models.build(example.SETTINGS.model, 10, 1, rng=generator(0, "model"))
    assert set(state) == set(dict(initial.named_parameters()))
    moved_by = torch.cat([(state[n] - p.detach()).flatten() for n, p in initial.named_parameters()])
    updates, _ = by_simulate()
    # three updates of 1e-6 each
    torch.testing.assert_close(moved_by, sum(updates), rtol=0, atol=3e-6)


@pytest.mark.slow
def test_bench_flower_shows_all_three_side_by_side(tmp_path):
    command = [tool("aircomp"), "bench", "flower", "--rounds", "3", "--out", str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    rows = read_json(tmp_path / "result.json")["rows"]
    assert [r["contender"] for r in rows] == ["aircomp simulate", "Flower alone", "Flower with our uplink"]
    assert all(r["seconds_per_round"] > 0 for r in rows)
    assert "Flower with our uplink" in done.stdout
