"""Several processes train as one does: real ones, started by torchrun, that talk over gloo."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from aircomp.common.artefact import write_toml
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.communication import CommunicationLayer
from aircomp.train.distributed import Gradients, Team, team
from aircomp.train.fit import pretrain
from aircomp.train.recipe import PretrainSettings
from helpers.records import read_lines, without_times
from helpers.settings import TRAINING

# three batches to validate with: shares of unequal size
QUICK = PretrainSettings.parse(TRAINING).changed(**{"data.batch_slots": 20, "data.validation_samples": 60})


def torchrun(*args, **options):
    """Start two processes; one thread each, as in the test run itself, so that sums have the same order."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *map(str, args)]
    found = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))  # helpers
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": found}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )


def finished(process, seconds=200):
    try:
        output, _ = process.communicate(timeout=seconds)
    finally:
        process.terminate()  # torchrun takes its processes along
    return process.returncode, output


def preset(directory):
    """Write the settings where the command can read them."""
    path = directory / "quick.toml"
    write_toml(path, QUICK.model_dump(mode="json"))
    return path


def records(directory):
    return without_times(read_lines(directory / "metrics.jsonl"))


@pytest.fixture(scope="module")
def one(collection, tmp_path_factory):
    """Return the directory of a training by one process with two batches in a step, for reading only."""
    out = tmp_path_factory.mktemp("one") / "layer"
    pretrain([collection], QUICK, out, batches_per_step=2)
    return out


@pytest.mark.process
@pytest.mark.slow
def test_two_processes_train_as_one_does_with_the_same_batches_in_a_step(collection, one, tmp_path):
    two = tmp_path / "two"
    code, output = finished(
        torchrun("-m", "aircomp", "pretrain", collection, "--preset", preset(tmp_path), "--out", two)
    )
    assert code == 0, output
    # to the bit: every batch is computed alike and gradients are added in one order, whoever computed them
    assert records(two) == records(one)
    for name in ("layer.safetensors", "last/layer.safetensors"):
        assert (two / name).read_bytes() == (one / name).read_bytes()
    assert CommunicationLayer.load(two).training["batches_per_step"] == 2


WORKER = """
import json, os, sys
from pathlib import Path

import torch
import torch.distributed as dist

from aircomp.common.tensors import tensor_hash
from aircomp.errors import AirCompError, TrainingDiverged
from aircomp.train import fit, loss as losses
from aircomp.train.distributed import Gradients, Team
from aircomp.train.recipe import PretrainSettings
from helpers.records import read_lines, without_times
from helpers.settings import TRAINING

fragments, out, settings = Path(sys.argv[1]), Path(sys.argv[2]), PretrainSettings.parse(json.loads(sys.argv[3]))
dist.init_process_group("gloo")
rank, found = dist.get_rank(), {}
group = Team(rank, 2)

mine = torch.tensor([[float(i), -float(i)] for i in group.share(range(5))], dtype=torch.float64)
found["interleaved"] = group.interleave(mine, 5)[:, 0].tolist()
found["leaders"] = group.leaders(10.0 + rank)
found["agrees"] = [group.agrees("00ff"), group.agrees(f"0{rank}")]

weights = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
gradients = Gradients(weights, 4, group)
for wave in range(2):  # batches 0 to 3, with gradients of 1, 2, 3, 4; the second parameter is in batch 3 only
    batch = 2 * wave + rank
    weights[0].grad = torch.full((2,), 1.0 + batch)
    weights[1].grad = torch.full((2,), 8.0) if batch == 3 else None
    mean_loss = gradients.add(torch.tensor(float(batch)))
    found[f"wave {wave}"] = None if mean_loss is None else mean_loss.item()
found["gradients"] = [None if w.grad is None else w.grad.tolist() for w in weights]

healthy, replicas = losses.count_error, []
watched = fit._Training._check_replicas
def watch(training, progress, otherwise):
    replicas.append(tensor_hash(*training.model.state_dict().values()))
    watched(training, progress, otherwise)
fit._Training._check_replicas = watch
calls = []
def breaks_down(mean, counts):  # in one process only
    calls.append(1)
    return healthy(mean, counts) * (float("nan") if rank == 1 and len(calls) > 11 else 1.0)
losses.count_error = breaks_down
try:
    fit.pretrain([fragments], settings, out / "diverged")
except TrainingDiverged as error:
    found["diverged"], found["replicas"] = str(error), list(replicas)
losses.count_error = healthy
def other_model(self, epoch, train=fit._Training._train):
    record = train(self, epoch)
    if rank == 1:
        with torch.no_grad():
            next(self.model.parameters()).add_(1e-3)
    return record
fit._Training._train = other_model
try:
    fit.pretrain([fragments], settings, out / "apart")
except AirCompError as error:
    found["apart"] = str(error)
(out / f"found{rank}.json").write_text(json.dumps(found))

def leaves(mean, counts):
    sys.exit(0)
if rank == 1:
    losses.count_error = leaves
try:
    fit.pretrain([fragments], settings, out / "alone")
except AirCompError as error:
    (out / "left.txt").write_text(f"{rank}: {error}")
os._exit(0)  # taking down a group whose other member has left aborts now and then
"""


@pytest.fixture(scope="module")
def found(collection, tmp_path_factory):
    """Let two processes do many things and return what each of them found, and where."""
    out = tmp_path_factory.mktemp("workers")
    (out / "worker.py").write_text(WORKER)
    code, output = finished(torchrun(out / "worker.py", collection, out, QUICK.model_dump_json()))
    assert code == 0, output
    return [json.loads((out / f"found{rank}.json").read_text()) for rank in range(2)], out


@pytest.mark.process
def test_everybody_learns_what_the_others_have(found):
    for each in found[0]:
        assert each["interleaved"] == [0, 1, 2, 3, 4]
        assert each["leaders"] == 10
        assert each["agrees"] == [True, False]


@pytest.mark.process
def test_a_step_follows_the_mean_gradient_of_all_its_batches(found):
    for each in found[0]:
        assert (each["wave 0"], each["wave 1"]) == (None, 1.5)
        assert each["gradients"] == [[2.5, 2.5], [2.0, 2.0], None]


@pytest.mark.process
def test_replicas_are_equal_to_the_bit_after_every_epoch_and_a_different_one_is_noticed(found):
    first, second = found[0]
    assert first["replicas"] == second["replicas"]
    assert len(set(first["replicas"])) == 2  # at the start and after the epoch that ended
    for each in (first, second):
        assert "the processes' models differ after epoch 1" in each["apart"]


@pytest.mark.process
def test_divergence_in_one_process_ends_all_of_them_with_the_best_layer_kept(found):
    both, out = found
    for each in both:
        assert "training diverged in epoch 2 (the loss is nan" in each["diverged"]
    assert CommunicationLayer.load(out / "diverged").training["best_epoch"] == 1
    assert (out / "diverged" / "last" / "layer.json").exists()


@pytest.mark.process
def test_a_process_that_leaves_does_not_keep_the_others_waiting(found):
    _, out = found
    assert "0: another process of this training has ended" in (out / "left.txt").read_text()


@pytest.mark.process
@pytest.mark.slow
def test_ctrl_c_ends_both_processes_and_training_can_be_resumed(collection, tmp_path):
    out = tmp_path / "layer"
    command = ["-m", "aircomp", "pretrain", collection, "--preset", preset(tmp_path), "--out", out]
    command += ["--epochs", "2000", "--schedule.patience", "2000"]
    process = torchrun(*command)
    while process.poll() is None and not (out / "layer.json").exists():
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    code, output = finished(process, seconds=40)
    assert code != 0
    assert "aircomp: stopped; what was done is saved" in output
    done = len(records(out))
    assert CommunicationLayer.load(out / "last").training["epochs"] in (done - 1, done)
    resumed = torchrun(*command, "--resume", "--epochs", str(done + 1))
    code, output = finished(resumed)
    assert code == 0, output
    assert len(records(out)) == done + 1


def test_accumulating_alone_equals_the_mean_of_the_batches():
    weight = torch.nn.Parameter(torch.zeros(3))
    gradients = Gradients([weight], 3, Team())
    for batch in range(3):
        weight.grad = torch.full((3,), float(batch))
        loss = gradients.add(torch.tensor(2.0 * batch))
        assert (loss is None) == (batch < 2)
    assert weight.grad.tolist() == [1, 1, 1]
    assert loss == 2


def test_batches_that_cannot_be_shared_are_refused(collection, tmp_path):
    with pytest.raises(ConfigError, match="give a multiple of 2"):
        Gradients([], 3, Team(0, 2))
    with pytest.raises(ConfigError, match="fewer batches"):
        pretrain([collection], QUICK, tmp_path / "layer", batches_per_step=100)
    assert not (tmp_path / "layer").exists()


def test_without_torchrun_there_is_one_process():
    with team() as alone:
        assert (alone.leads, alone.size, list(alone.share([1, 2, 3]))) == (True, 1, [1, 2, 3])


@pytest.mark.seconds
def test_more_batches_in_a_step_resume_only_with_as_many(collection, one, tmp_path):
    pretrain([collection], QUICK.changed(epochs=1), tmp_path / "layer", batches_per_step=2)
    with pytest.raises(ArtefactError, match="other settings"):
        pretrain([collection], QUICK, tmp_path / "layer", resume=True)
    pretrain([collection], QUICK, tmp_path / "layer", resume=True, batches_per_step=2)
    assert records(tmp_path / "layer") == records(one)
