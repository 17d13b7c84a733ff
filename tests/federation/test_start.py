import pytest
import torch
from safetensors.torch import load_file, save_file

from aircomp.errors import ArtefactError, ConfigError
from aircomp.federation.central import train_centrally
from aircomp.federation.settings import CentralSettings
from aircomp.federation.simulate import build_model, simulate
from aircomp.federation.start import MODEL_FILE, load_start, save_model


@pytest.fixture
def trained(quick, digits, tmp_path):
    return simulate(quick, dataset=digits, out=tmp_path / "before")


def test_a_run_begins_where_another_one_ended(quick, digits, trained):
    again = simulate(quick.changed(rounds=0, start=str(trained.out)), dataset=digits)
    assert torch.equal(again.state.weights, trained.state.weights)


def test_a_start_may_be_the_file_itself(quick, digits, trained):
    again = simulate(quick.changed(rounds=0, start=str(trained.out / MODEL_FILE)), dataset=digits)
    assert torch.equal(again.state.weights, trained.state.weights)


def test_a_start_carries_the_buffers(quick, digits, tmp_path):
    settings = {"model.name": "vgg", "model.width": 2, "rounds": 1}
    before = simulate(quick.changed(**settings), dataset=digits, out=tmp_path / "before")
    after = simulate(quick.changed(**settings | {"rounds": 0, "start": str(before.out)}), dataset=digits)
    assert before.state.buffers.numel() > 0
    assert torch.equal(after.state.buffers, before.state.buffers)


def test_a_run_resumes_without_its_start(quick, digits, trained, tmp_path):
    settings = quick.changed(rounds=2, start=str(trained.out))
    whole = simulate(settings, dataset=digits)
    simulate(settings.changed(rounds=1), dataset=digits, out=tmp_path / "run")
    (trained.out / MODEL_FILE).unlink()
    resumed = simulate(settings, dataset=digits, out=tmp_path / "run", resume=True)
    assert torch.equal(resumed.state.weights, whole.state.weights)


def test_a_resumed_run_has_the_counters_of_its_start(quick, digits, tmp_path):
    settings = quick.changed(**{"model.name": "vgg", "model.width": 2, "rounds": 1, "uplink": "ideal"})
    before = simulate(settings, dataset=digits, out=tmp_path / "before")
    counted = {k: v + 77 if k.endswith("num_batches_tracked") else v for k, v in before.model.state_dict().items()}
    save_file(counted, tmp_path / "start.safetensors")
    settings = settings.changed(start=str(tmp_path / "start.safetensors"))
    simulate(settings, dataset=digits, out=tmp_path / "run")
    simulate(settings.changed(rounds=2), dataset=digits, out=tmp_path / "run", resume=True)
    simulate(settings.changed(rounds=2), dataset=digits, out=tmp_path / "whole")
    whole, parts = (load_file(tmp_path / name / MODEL_FILE) for name in ("whole", "run"))
    assert all(torch.equal(whole[name], parts[name]) for name in counted)
    assert any(name.endswith("num_batches_tracked") and value == 77 for name, value in whole.items())


def test_a_start_of_other_shapes_names_both(quick, digits, trained):
    with pytest.raises(ArtefactError, match=r"conv1.weight is float32 \[4, 1, 3, 3\]; expected float32 \[8, 1, 3, 3\]"):
        simulate(quick.changed(start=str(trained.out), **{"model.width": 8}), dataset=digits)


def _foreign(path):
    save_file({"foreign": torch.zeros(1)}, path)


def _not_finite(path):
    tensors = {"weight": torch.full((2, 2), float("nan")), "bias": torch.zeros(2)}
    save_file(tensors, path)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.write_bytes(b"not safetensors"), "damaged"),
        (_foreign, "does not fit the model: it lacks"),
        (_not_finite, "weight holds numbers that are not finite"),
        (lambda path: None, "does not exist"),
    ],
)
def test_a_damaged_or_foreign_start_is_one_sentence(tmp_path, damage, says):
    damage(tmp_path / "start.safetensors")
    module = torch.nn.Linear(2, 2)
    before = module.weight.clone()
    with pytest.raises(ArtefactError, match=says):
        load_start(module, tmp_path / "start.safetensors")
    assert torch.equal(module.weight, before)


def test_a_run_that_is_not_finished_is_no_start(tmp_path):
    with pytest.raises(ArtefactError, match=r"holds no model\.safetensors"):
        load_start(torch.nn.Linear(2, 2), tmp_path)


def test_a_bad_start_loses_nothing_of_what_overwrite_would_replace(quick, digits, trained):
    kept = (trained.out / "result.json").read_bytes()
    with pytest.raises(ArtefactError):
        simulate(quick.changed(start="nowhere"), dataset=digits, out=trained.out, overwrite=True)
    assert (trained.out / "result.json").read_bytes() == kept


def test_central_training_learns_and_repeats_its_bits(quick, digits, tmp_path):
    settings = CentralSettings(epochs=4, batch_size=64, learning_rate=0.2)
    modules = [build_model(quick, digits) for _ in range(2)]
    rows = [train_centrally(module, digits, settings, seed=1) for module in modules]
    assert rows[0]["test_accuracy"] > 0.7  # ten classes: chance is .1
    assert all(torch.equal(a, b) for a, b in zip(modules[0].parameters(), modules[1].parameters(), strict=True))
    save_model(tmp_path, modules[0])
    run = simulate(quick.changed(rounds=1, start=str(tmp_path)), dataset=digits)
    assert run.metrics[0]["test_accuracy"] > 0.7


def test_a_batch_larger_than_the_data_is_refused(quick, digits):
    with pytest.raises(
        ConfigError, match=r"central.batch_size = 5000, but there are only \d+ training images; lower it"
    ):
        train_centrally(build_model(quick, digits), digits, CentralSettings(batch_size=5000), seed=1)
