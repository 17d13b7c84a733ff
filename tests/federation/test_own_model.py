"""A user's own model: dropout, frozen layers, tied weights, counters. The same bits everywhere, and the object untouched."""

import copy
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from aircomp.cli.simulate import run as run_command
from aircomp.common.artefact import read_json
from aircomp.data.images import load
from aircomp.errors import AirCompError, ArtefactError, ConfigError
from aircomp.federation.experiment import Experiment, load_experiment
from aircomp.federation.simulate import simulate
from aircomp.report.gather import sections_of
from helpers.commands import wait_for
from helpers.records import read_lines, without_times
from helpers.settings import QUICK


class Net(nn.Module):
    """All that may go wrong in one: random layers, frozen, tied and unused ones, buffers of every kind."""

    def __init__(self, seed: int = 0):
        super().__init__()
        self.features = nn.Conv2d(1, 6, 3).requires_grad_(False)
        self.norm = nn.BatchNorm2d(6, momentum=None)  # weighs by its counter of batches, an integer buffer
        self.first, self.second = nn.Linear(54, 54), nn.Linear(54, 54)
        self.second.weight = self.first.weight
        self.out = nn.Linear(54, 10)
        self.unused = nn.Linear(54, 3)
        self.register_buffer("mean_size", torch.zeros(()))
        self.register_buffer("phases", torch.ones(2, dtype=torch.complex64))
        rng = torch.Generator().manual_seed(seed)
        for p in self.parameters():
            nn.init.uniform_(p, -0.15, 0.15, generator=rng)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.norm(self.features(x)), 2).flatten(1)
        if self.training:
            self.mean_size = 0.9 * self.mean_size + 0.1 * x.detach().abs().mean()  # replaced, not changed in place
        x = F.dropout(F.relu(self.first(x)), 0.3, self.training) + torch.randn(()) * 0.01
        return self.out(F.dropout(F.relu(self.second(x)), 0.3, self.training))


def settings(**changes: object) -> Experiment:
    quick = QUICK | {"rounds": 4, "uplink": "perfect", "local.weight_decay": 0.01}
    return load_experiment("digits").changed(**quick | changes)


def outcome(run):
    return without_times(run.metrics), {name: tensor.tolist() for name, tensor in run.model.state_dict().items()}


@pytest.fixture(scope="module")
def whole():
    return outcome(simulate(settings(), model=Net()))


@pytest.mark.engines
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_engines_agree_to_the_bit_whatever_the_process_has_drawn_before(whole, workers):
    torch.rand(workers)  # the global generator is somewhere else in every run
    model = Net()
    before = torch.get_rng_state()
    run = simulate(settings(engine="processes", workers=workers), model=model)
    assert outcome(run) == whole
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file .*/dev/null:ResourceWarning")  # Ray's own
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_ray_gives_the_bits_of_one_process(whole, monkeypatch):
    pytest.importorskip("ray")
    here = Path(__file__).parent  # where workers find the module of the model
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])]))
    assert outcome(simulate(settings(engine="ray", workers=2), model=Net())) == whole


@pytest.mark.seconds
def test_a_resumed_run_ends_in_the_same_bits_whatever_the_module_holds(whole, tmp_path):
    simulate(settings(rounds=2), model=Net(), out=tmp_path)
    assert outcome(simulate(settings(), model=Net(seed=1), out=tmp_path, resume=True)) == whole


class Masked(nn.Module):
    """Attention's mask: a buffer with infinities."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(64, 10)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.register_buffer("mask", torch.tensor([0.0] * 60 + [-torch.inf] * 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        return self.out(x * (x + self.mask).softmax(dim=1))


@pytest.mark.parametrize("buffers", ["average", "local"])
def test_a_mask_of_infinities_resumes_and_starts_a_run(tmp_path, buffers):
    whole = simulate(settings(rounds=2, buffers=buffers), model=Masked())
    simulate(settings(rounds=1, buffers=buffers), model=Masked(), out=tmp_path / "run")
    parts = simulate(settings(rounds=2, buffers=buffers), model=Masked(), out=tmp_path / "run", resume=True)
    assert outcome(parts) == outcome(whole)
    again = simulate(settings(rounds=0, start=str(tmp_path / "run")), model=Masked())
    assert torch.equal(again.state.weights, whole.state.weights)


SCRIPT = """
    import sys
    sys.path[:0] = {folders!r}
    from test_own_model import Net, settings
    from aircomp.federation.simulate import simulate
    simulate(settings(engine="processes", workers=2), model=Net(), out=sys.argv[1], resume=True)
"""


@pytest.mark.process
def test_a_killed_run_ends_in_the_same_bits(whole, tmp_path):
    script = textwrap.dedent(SCRIPT.format(folders=[str(folder) for folder in Path(__file__).parents[:2]]))
    process = subprocess.Popen([sys.executable, "-c", script, tmp_path])
    wait_for(lambda: process.poll() is not None or len(read_lines(tmp_path / "metrics.jsonl")) >= 2, seconds=60)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    assert outcome(simulate(settings(), model=Net(), out=tmp_path, resume=True)) == whole


def test_only_what_gets_a_gradient_is_sent_and_moves(whole):
    run = simulate(settings(rounds=1), model=Net())
    sent = {"norm.weight", "norm.bias", "first.weight", "first.bias", "second.bias", "out.weight", "out.bias"}
    assert run.row["num_parameters"] == sum(p.numel() for name, p in Net().named_parameters() if name in sent)
    before, after = Net().state_dict(), run.model.model.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == sent | {"second.weight", "norm.running_mean", "norm.running_var", "mean_size"}
    assert run.model.model.second.weight is run.model.model.first.weight


class Viewing(nn.Module):
    """Flattens by a view, as many models do: it needs the numbers of an image side by side."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 4, 3), nn.Linear(144, 10)

    def forward(self, x):
        return self.out(self.conv(x).view(len(x), -1))


def test_a_model_may_flatten_images_by_a_view():
    rng = torch.Generator().manual_seed(0)
    images, labels = torch.rand(300, 3, 8, 8, generator=rng), torch.arange(300) % 10
    dataset = (TensorDataset(images, labels), TensorDataset(images[:50], labels[:50]))
    found = simulate(settings(rounds=1), dataset=dataset, model=Viewing())
    assert found.metrics[0]["round"] == 1


def test_the_callers_module_is_left_alone():
    model = Net().eval()
    model.norm.train()
    before = copy.deepcopy(model.state_dict())
    run = simulate(settings(rounds=1), model=model)
    assert run.model is not model
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert [m.training for m in (model, model.norm, model.out)] == [False, True, False]
    assert all(p.grad is None for p in model.parameters())
    storages = {p.untyped_storage().data_ptr() for p in run.model.parameters()}
    assert len(storages) == len(list(run.model.parameters()))  # tensors of their own: they can be saved one by one


class Late(Net):
    """Uses a layer only from the second call in training on."""

    calls = 0

    def forward(self, x):
        self.calls += self.training
        y = super().forward(x)
        return y + self.unused(x.flatten(1)[:, :54]).sum() if self.calls > 1 else y


def test_a_gradient_that_comes_late_is_no_silent_loss():
    with pytest.raises(ConfigError, match=r"unused\.weight had no gradient at the start"):
        simulate(settings(), model=Late())


class Failing(Net):
    """Fails on small batches, which come last."""

    def forward(self, x):
        if len(x) < 30 and self.training:
            raise KeyError("small")
        return super().forward(x)


def test_a_model_that_fails_is_named_with_round_and_device():
    with pytest.raises(AirCompError, match=r"training .* in round 1 failed: KeyError: 'small'"):
        simulate(settings(), model=Failing())


def test_another_model_does_not_resume_the_run(tmp_path):
    class Wider(Net):
        def __init__(self):
            super().__init__()
            self.unused = nn.Linear(54, 4)

    simulate(settings(rounds=1), model=Net(), out=tmp_path)
    changed = type("Net", (Wider,), {"__module__": Net.__module__, "__qualname__": "Net"})
    for other in ({"model": changed()}, {"model": Failing()}, {}):
        with pytest.raises((ArtefactError, ConfigError)):
            simulate(settings(), out=tmp_path, resume=True, **other)


def halved(update):
    return 0.5 * update


def test_no_page_and_no_command_line_repeats_a_run_with_own_parts(tmp_path):
    simulate(settings(rounds=1), model=Net(), after=halved, out=tmp_path)
    (section,) = sections_of([tmp_path])
    assert section.commands == ()
    assert f"parts of its own: model {Net.__module__}.Net, after {__name__}.halved." in section.text
    assert read_json(tmp_path / "result.json")["config"]["own"]["model"] == f"{Net.__module__}.Net"
    for arguments in ([str(tmp_path / "config.toml")], ["--resume", "--out", str(tmp_path)]):
        with pytest.raises(ConfigError, match=r"parts of its own \(model = .*Net, after = .*halved\)"):
            run_command([*arguments, "--rounds", "1"])


def without(name: str) -> nn.Module:
    """Return a model that cannot be trained, for the reason of that name."""
    model = Net()
    match name:
        case "lazy":
            model.first = nn.LazyLinear(54)
        case "meta":
            model = model.to("meta")
        case "frozen":
            model.requires_grad_(False)
        case "double":
            model.double()
        case "half":
            model.out.bfloat16()
        case "nan":
            nn.init.constant_(model.out.bias, float("nan"))
        case "shared memory":
            model.second.weight = nn.Parameter(model.first.weight.data)
        case "detached":
            model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), Detach())
        case "shape":
            model = nn.Sequential(nn.Flatten(), nn.Linear(65, 10))
        case "classes":
            model = nn.Sequential(nn.Flatten(), nn.Linear(64, 9))
        case "tuple":
            model = nn.LSTM(8, 10)
        case "images":
            model = nn.Conv2d(1, 10, 3)
        case "uncopyable":
            model.lock = (i for i in range(3))
    return model


class Detach(nn.Module):
    """Lets no gradient through."""

    def forward(self, x):
        return x.detach()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lazy", "first.weight has no shape yet"),
        ("meta", "features.weight is on the meta device"),
        ("frozen", "none to train"),
        ("double", "norm.weight is torch.float64; expected torch.float32"),
        ("half", "must have the same dtype"),
        ("nan", "out.bias holds values that are not finite"),
        ("shared memory", "first.weight and second.weight share their memory"),
        ("detached", "no trainable parameter of the model reaches its logits"),
        ("shape", r"the model fails on a batch of \(64, 1, 8, 8\) of float32"),
        ("classes", r"returns torch.float32 \(64, 9\) for a dataset of 10 classes"),
        ("tuple", "the model fails on a batch of"),
        ("images", r"\(64, 10, 6, 6\) for 64 images; expected logits \[64, 10\]"),
        ("uncopyable", "cannot be copied"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_in_one_sentence(name, message):
    with pytest.raises(ConfigError, match=message) as caught:
        simulate(settings(), model=without(name), dataset=load("digits"))
    assert "\n" not in str(caught.value)
