"""Any model, task and data: the same loop, the same bits on every engine, and one sentence where something does not fit."""

import copy
import math
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import aircomp
from aircomp.common.tensors import read_tensors
from aircomp.errors import AirCompError, ArtefactError, ConfigError, ShapeError, TrainingDiverged
from aircomp.federation import round as rounds
from helpers.draws import seeded
from helpers.records import without_times

LINE = torch.tensor([[1.0], [-2.0], [0.5]])
SIZES = (30, 7, 12, 25)
IDEAL, QUIET = ("ideal", aircomp.Awgn(10.0)), ("hybrid", aircomp.Awgn(20.0))


def table(size, seed=0):
    inputs = torch.randn(size, 3, generator=seeded(seed))
    return TensorDataset(inputs, inputs @ LINE)


def clients(sizes=SIZES):
    return [table(size, seed) for seed, size in enumerate(sizes)]


def linear():
    model = nn.Linear(3, 1)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def federate(model=None, held=None, link=IDEAL, **options):
    options = {"rounds": 2, "participation": aircomp.Fixed(4), "local": aircomp.Local(steps=2, batch_size=8)} | options
    if "step" not in options:
        options.setdefault("loss", F.mse_loss)
    return aircomp.federate(model or linear(), held or clients(), aircomp.Link(*link), **options)


def outcome(run):
    return without_times(run.metrics), {name: tensor.tolist() for name, tensor in run.model.state_dict().items()}


def test_a_regression_on_unequal_clients_finds_its_line():
    options = {"test": table(50, 9), "metrics": {"r2": aircomp.metrics.r2}, "base": table(20, 8), "rounds": 30}
    run = federate(link=QUIET, local=aircomp.Local(learning_rate=0.1, steps=5, batch_size=8), **options)
    torch.testing.assert_close(run.model.weight.detach(), LINE.T, atol=0.05, rtol=0)
    assert run.row["test_r2"] > 0.99
    assert run.row["side_information"] == list(aircomp.Link(*QUIET).scheme.side_information)


def test_one_step_on_everything_is_gradient_descent_on_the_mean_loss():
    """Two clients and plain SGD by hand: the mean of their gradients, or the mean weighted by their samples."""
    held, rate = [table(30, 0), table(10, 1)], 0.1
    for weights, shares in (("equal", (0.5, 0.5)), ("samples", (0.75, 0.25)), ([1, 3], (0.25, 0.75))):
        local = aircomp.Local(steps=1, batch_size=30, learning_rate=rate)
        run = federate(held=held, local=local, weights=weights, participation=aircomp.Fixed(2), rounds=1)
        expected = torch.zeros(1, 3)
        for share, data in zip(shares, held, strict=True):
            inputs, targets = data.tensors
            expected += share * rate * 2 * (targets.T @ inputs) / len(targets)  # of a squared error at weights zero
        torch.testing.assert_close(run.model.weight.detach(), expected, rtol=1e-5, atol=1e-6)


def plain_adamw(rate, steps):
    model, (inputs, targets) = linear(), table(8).tensors
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return model.weight.detach()


@pytest.mark.parametrize("own", [False, True])
def test_an_optimiser_by_name_or_factory_is_torchs_own(own):
    # one client whose batch is all its data, in another order: float32 sums of eight terms
    optimizer = partial(torch.optim.AdamW, lr=0.05, weight_decay=0.1) if own else "adamw"
    options = {} if own else {"weight_decay": 0.1}
    local = aircomp.Local(optimizer=optimizer, learning_rate=0.05, steps=3, batch_size=8, **options)
    run = federate(held=[table(8)], local=local, rounds=1, participation=aircomp.Fixed(1))
    torch.testing.assert_close(run.model.weight.detach(), plain_adamw(0.05, 3), rtol=1e-4, atol=1e-6)


def test_an_optimiser_that_asks_for_the_loss_again_gets_it():
    # L-BFGS finds the line of a table without noise in one round; one that is given a gradient once cannot
    run = federate(
        held=[table(8)],
        local=aircomp.Local(optimizer="lbfgs", learning_rate=1.0, steps=2),
        rounds=1,
        participation=aircomp.Fixed(1),
    )
    torch.testing.assert_close(run.model.weight.detach(), LINE.T, rtol=0, atol=1e-3)


def test_a_schedule_and_a_decay_set_the_rate_of_each_round():
    local = aircomp.Local(learning_rate=0.1, decay=0.5, schedule=lambda index: 2.0 if index else 1.0, steps=1)
    assert [local.rate(index) for index in range(3)] == [0.1, 0.1, 0.05]


class Words(nn.Module):
    """Takes a dictionary, as models of language do."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(20, 4), nn.Linear(4, 3)

    def forward(self, batch):
        return self.out((self.embed(batch["tokens"]) * batch["mask"][:, :, None]).mean(dim=1))


class Sentences(Dataset):
    def __init__(self, size, seed):
        self.tokens = torch.randint(0, 20, (size, 5), generator=seeded(seed))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"tokens": self.tokens[index], "mask": torch.ones(5)}, int(self.tokens[index, 0]) % 3


def test_dictionaries_of_tokens_go_through_any_model_and_several_metrics():
    metrics = {"accuracy": aircomp.metrics.accuracy, "classes": lambda outputs, targets: outputs.shape[1]}
    held = [Sentences(size, size) for size in SIZES]
    run = federate(Words(), held, loss=F.cross_entropy, test=Sentences(20, 99), metrics=metrics)
    assert run.row["test_classes"] == 3
    assert 0 <= run.row["test_accuracy"] <= 1
    assert run.metrics[-1]["test_loss"] > 0


def own_step(model, batch):
    return (model(batch["x"]) - batch["y"]).abs().mean()


def as_dictionary(items):
    return {"x": torch.stack([x for x, _ in items]), "y": torch.stack([y for _, y in items])}


def test_a_step_of_ones_own_takes_any_batch():
    run = federate(step=own_step, collate=as_dictionary, test=table(20, 9))
    assert 0 < run.row["test_loss"] < 3


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize(
    ("metric", "outputs", "targets"),
    [
        ("accuracy", torch.zeros(6, 1), torch.zeros(6, dtype=torch.int64)),  # one logit: every sample is class 0
        ("accuracy", torch.zeros(6, 2), torch.zeros(6, 1, dtype=torch.int64)),  # 36 comparisons of six
        ("accuracy", torch.zeros(6, 2), torch.zeros(6, 2)),
        ("accuracy", {"logits": torch.zeros(6, 2)}, torch.zeros(6, dtype=torch.int64)),
        ("r2", torch.zeros(6, 3), torch.zeros(6, 1)),
        ("mean_absolute_error", torch.zeros(2, 3), torch.zeros(3, 2)),
    ],
)
def test_a_metric_refuses_outputs_that_its_targets_do_not_fit(metric, outputs, targets):
    with pytest.raises(ShapeError, match=r"outputs are .* and targets torch.* expected"):
        getattr(aircomp.metrics, metric)(outputs, targets)


def test_weights_come_as_a_tensor_too():
    assert outcome(federate(weights=torch.tensor([1.0, 2.0, 3.0, 4.0]))) == outcome(federate(weights=[1, 2, 3, 4]))


@pytest.mark.engines
def test_every_engine_gives_the_same_bits(tmp_path):
    options = {"step": own_step, "collate": as_dictionary, "link": QUIET, "weights": "samples", "rounds": 3}
    options["local"] = aircomp.Local(optimizer="adam", steps=2, batch_size=8, clip_norm=0.5)
    whole = outcome(federate(**options))
    assert outcome(federate(**options, engine="processes", workers=2)) == whole
    federate(**options | {"rounds": 1}, out=tmp_path)
    assert outcome(federate(**options, out=tmp_path, resume=True)) == whole


@pytest.mark.engines
def test_a_step_that_cannot_travel_trains_here_and_says_so(caplog):
    whole = outcome(federate(loss=lambda outputs, targets: F.mse_loss(outputs, targets)))
    caplog.clear()
    there = federate(loss=lambda outputs, targets: F.mse_loss(outputs, targets), engine="processes", workers=2)
    assert outcome(there) == whole
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "<lambda> cannot travel to another process" in record.getMessage()


def test_half_precision_is_sent_as_float32_and_written_back(tmp_path):
    model, plain = linear().bfloat16(), F.mse_loss
    run = federate(model, loss=lambda outputs, targets: plain(outputs.float(), targets), collate=in_half, out=tmp_path)
    assert run.state.weights.dtype == torch.float32
    assert run.model.weight.dtype == torch.bfloat16
    assert torch.equal(run.model.weight.float().flatten(), run.state.weights[:3].bfloat16().float())
    assert read_tensors(tmp_path / "model.safetensors")[0]["weight"].dtype == torch.bfloat16


def in_half(items):
    return torch.stack([x for x, _ in items]).bfloat16(), torch.stack([y for _, y in items])


def test_nothing_of_the_callers_is_changed():
    model, link = linear(), aircomp.Link(*QUIET)
    before, held = copy.deepcopy(model.state_dict()), clients()
    aircomp.federate(model, held, link, loss=F.mse_loss, rounds=1, participation=aircomp.Fixed(4))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert (link.round, link.memory) == (0, {})
    assert all(torch.equal(a.tensors[0], b.tensors[0]) for a, b in zip(held, clients(), strict=True))


def test_a_run_leaves_rows_a_table_and_figures(tmp_path):
    run = federate(test=table(20, 9), metrics={"r2": aircomp.metrics.r2}, out=tmp_path / "run")
    rows = run.frame() if isinstance(run.frame(), list) else run.frame().to_dict("records")
    assert [row["round"] for row in rows] == [1, 2]
    assert rows[0]["seconds_train"] > 0
    lines = (tmp_path / "run" / "metrics.csv").read_text().splitlines()
    assert lines[0].split(",") == list(rows[0])
    assert len(lines) == 3
    for name in ("curve.svg", "curve.pdf"):
        assert run.plot(path=tmp_path / name).get_size_inches()[0] == 3.5
        assert (tmp_path / name).stat().st_size > 1000
    axes = aircomp.plot({"one": run, "other": run}, "test_r2").axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "other"]
    with pytest.raises(ConfigError, match="no field in these runs 'test_r3': did you mean 'test_r2'"):
        run.plot("test_r3")


@pytest.mark.parametrize("higher", [True, False])
def test_the_best_of_a_metric_knows_its_direction(higher):
    values = iter([1.0, 3.0, 2.0])

    def metric(outputs, targets):
        return next(values)

    metric.higher_is_better = higher
    run = federate(test=table(5), metrics={"found": metric}, rounds=3)
    assert run.row["best_test_found"] == (3.0 if higher else 1.0)
    assert run.row["test_found"] == 2.0


class Source:
    """Has the method of flwr-datasets' partitioners."""

    num_partitions = 4

    def load_partition(self, number):
        return clients()[number]


def test_an_object_with_load_partition_gives_the_clients():
    assert outcome(federate(held=Source())) == outcome(federate())


def test_one_dataset_is_split_as_a_partition_says():
    data = TensorDataset(torch.arange(60.0)[:, None], torch.arange(60) % 3)
    for kind, settings in (("shards", {}), ("dirichlet", {"alpha": 0.1}), ("quantity", {}), ("power-law", {})):
        held, base = aircomp.split(data, 5, kind, **settings)
        rows = [i for part in (*held, base) for i in part.indices]
        assert len(rows) == len(set(rows))
        assert len(held) == 5
    held, base = aircomp.split(data, [[0, 1], [2]])
    assert ([list(part.indices) for part in held], base) == ([[0, 1], [2]], None)


class Endless:
    def __getitem__(self, index):
        return torch.zeros(3), torch.zeros(1)


class Broken(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 11:
            raise OSError("the file is gone")
        return table(12)[index]


def own_mean(outputs, targets):
    return outputs.mean()


def nan_on_large(outputs, targets):
    return F.mse_loss(outputs, targets) * (math.nan if targets.abs().max() > 50 else 1.0)


BAD = {
    "vector": ({"loss": partial(F.mse_loss, reduction="none")}, r"mse_loss returned torch.float32 \[.*one number"),
    "neither": ({"loss": None}, "neither of loss and step were given"),
    "both": ({"loss": F.mse_loss, "step": own_step}, "both of loss and step were given"),
    "no length": ({"held": [*clients(), Endless()]}, "client 4 has no length"),
    "nothing": ({"held": [*clients(), table(0)]}, "client 4 has no samples"),
    "no clients": ({"held": [[]]}, "client 0 has no samples"),
    "tensor": ({"held": [torch.zeros(5, 3)]}, "client 0 is torch.float32 .*map-style"),
    "weights": ({"weights": [1, 2]}, "weights are 2 numbers for 4 clients"),
    "negative": ({"weights": [1, 2, 3, -1]}, "weights is -1"),
    "zero": ({"weights": [0, 0, 0, 0]}, "weights are all zero"),
    "word": ({"weights": "sample"}, "weights is the str 'sample'; expected 'equal', 'samples'"),
    "inputs": ({"model": nn.Linear(4, 1)}, r"the model fails on a batch of \(30, 3\) of float32"),
    "no test": ({"metrics": {"r2": aircomp.metrics.r2}}, "metrics were given without test"),
    "metric": ({"metrics": {"r2": 5}, "test": table(5)}, "the metric 'r2' is 5"),
    "metric raises": (
        {"metrics": {"wrong": lambda outputs, targets: outputs @ targets}, "test": table(5)},
        "the metric 'wrong' failed after round 1",
    ),
    "metric of many": (
        {"metrics": {"many": lambda outputs, targets: outputs}, "test": table(5)},
        "the metric 'many' returned torch.float32 .5, 1. after round 1; expected one number",
    ),
    "reading": (
        {"held": [*clients(), Broken()], "participation": aircomp.Fixed(5)},
        "device 4 in round 1.*file is gone",
    ),
    "optimiser": ({"local": aircomp.Local(optimizer="adamm")}, "no optimizer 'adamm': did you mean 'adam'"),
    "schedule": ({"local": aircomp.Local(schedule=lambda index: "slow")}, "factor .* schedule returned .* 'slow'"),
    "participation": ({"participation": aircomp.Uniform(3, 9)}, "participation.high = 9 .* only 4"),
    "link": ({"link": None}, "link is None; expected an aircomp.Link"),
    "pair": ({"collate": as_dictionary}, "expected a pair .inputs, targets."),
    "pair for metrics": (
        {
            "loss": None,
            "step": own_step,
            "collate": as_dictionary,
            "test": table(5),
            "metrics": {"r2": aircomp.metrics.r2},
        },
        "testing before round 1: a batch is the dict .* expected a pair .inputs, targets., .* or leave metrics out",
    ),
    "test": ({"test": TensorDataset(torch.ones(9, 2), torch.ones(9, 1))}, "testing before round 1: .*Linear raised"),
    "metric of the package": (
        {"model": nn.Linear(3, 2), "loss": own_mean, "test": table(5), "metrics": {"r2": aircomp.metrics.r2}},
        r"the metric 'r2' failed after round 1: outputs are torch.float32 \[5, 2\] and targets torch.float32 \[5, 1\]",
    ),
    "resume": ({"resume": True}, "resume was given without out"),
    "buffers": ({"buffers": "recomputed"}, "buffers = 'recomputed' takes samples of the base station"),
}


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_run_is_one_sentence(case):
    options, match = BAD[case]
    options = {"loss": F.mse_loss, "participation": aircomp.Fixed(4), "rounds": 1} | options
    model, held = options.pop("model", linear()), options.pop("held", clients())
    link = options.pop("link", aircomp.Link(*IDEAL))
    with pytest.raises(AirCompError, match=match) as caught:
        aircomp.federate(model, held, link, **options)
    assert "\n" not in str(caught.value)


def test_a_loss_that_is_not_finite_names_device_and_round_and_loses_nothing(tmp_path):
    far = TensorDataset(100 * torch.ones(9, 3), 100 * torch.ones(9, 1))
    options = {"held": [*clients(), far], "loss": nan_on_large, "out": tmp_path}
    with pytest.raises(TrainingDiverged, match=r"device 4 in round 1 is not finite.*nan_on_large is nan"):
        federate(**options, participation=aircomp.Fixed(5))
    # what was done before is kept: the run goes on where it stopped
    trace = tmp_path / "trace.txt"
    trace.write_text("0 1\n2 3\n4\n")
    options = options | {"participation": aircomp.Trace(trace), "rounds": 3, "out": tmp_path / "run"}
    with pytest.raises(TrainingDiverged, match=r"device 4 in round 3"):
        federate(**options)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 3
    again = federate(**options | {"rounds": 2}, resume=True)
    assert [record["round"] for record in again.metrics] == [1, 2]


def test_error_memories_beyond_a_size_lie_in_files_and_change_no_bit(monkeypatch):
    expected = outcome(federate(link=QUIET, rounds=3))
    monkeypatch.setattr(rounds, "MEMORIES_IN_RAM", 2 * 16)  # of two devices, with a model of four parameters
    run = federate(link=QUIET, rounds=3)
    assert outcome(run) == expected
    if sys.platform == "linux":
        files = {
            line.split("/", 1)[1] for line in Path("/proc/self/maps").read_text().splitlines() if "/aircomp-" in line
        }
        assert len(files) == len(run.state.memories) == 4  # those of the rounds before are gone


def test_error_memories_that_the_disk_does_not_take_end_the_run_in_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(rounds, "MEMORIES_IN_RAM", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(ArtefactError, match=r"0 MB cannot be written to .*gone .*No such file.*TMPDIR"):
        federate(link=QUIET)


def test_a_shape_error_in_training_names_the_device():
    def shrinking(outputs, targets):
        return F.mse_loss(outputs, targets, reduction="none" if len(targets) == 7 else "mean").squeeze(-1)

    with pytest.raises(ShapeError, match=r"training device 1 in round 1: .*shrinking returned"):
        federate(loss=shrinking, local=aircomp.Local(epochs=1, batch_size=40))
