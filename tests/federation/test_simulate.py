import functools
import os
import signal
import subprocess
import sys

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.channel.base import AtDevices, Csi
from aircomp.common.artefact import read_json
from aircomp.common.tensors import read_tensors, tensor_hash, write_tensors
from aircomp.encode.codebook import make_codebook
from aircomp.errors import ArtefactError, ConfigError, TrainingDiverged
from aircomp.federation.simulate import simulate
from aircomp.measure.fields import FIELDS
from aircomp.schemes.digital.decoders import make_decoder
from helpers.commands import Command, wait_for
from helpers.records import read_lines, without_times
from helpers.settings import QUICK, flags


def test_the_same_seed_gives_the_same_bits_and_another_does_not(quick, digits):
    first, again = simulate(quick, dataset=digits), simulate(quick, dataset=digits)
    other = simulate(quick.changed(seed=1), dataset=digits)
    assert without_times(first.metrics) == without_times(again.metrics)
    assert torch.equal(first.state.weights, again.state.weights)
    assert not torch.equal(first.state.weights, other.state.weights)


@pytest.mark.engines
def test_the_number_of_workers_does_not_change_a_bit(quick, digits):
    one = simulate(quick.changed(uplink="perfect"), dataset=digits)
    two = simulate(quick.changed(uplink="perfect", engine="processes", workers=2), dataset=digits)
    assert without_times(one.metrics) == without_times(two.metrics)
    assert torch.equal(one.state.weights, two.state.weights)


@pytest.mark.seconds
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"server.kind": "fedadam", "server.learning_rate": 0.01},
        {"uplink": "gamp", "channel.snr_db": -15.0, "uplink.repeat": "auto"},
        {"buffers": "local", "model.name": "vgg", "model.width": 2},
    ],
)
def test_a_resumed_run_ends_in_the_same_bits(quick, digits, tmp_path, options):
    experiment = quick.changed(**{"uplink": "perfect", "rounds": 4, **options})
    whole = simulate(experiment, dataset=digits, out=tmp_path / "whole")
    simulate(experiment.changed(rounds=2), dataset=digits, out=tmp_path / "parts")
    parts = simulate(experiment, dataset=digits, out=tmp_path / "parts", resume=True)
    assert without_times(whole.metrics) == without_times(parts.metrics)
    assert torch.equal(whole.state.weights, parts.state.weights)
    assert whole.state.memories.keys() == parts.state.memories.keys()
    assert all(torch.equal(whole.state.memories[d], parts.state.memories[d]) for d in whole.state.memories)
    assert dict(whole.state.uplink_memory) == dict(parts.state.uplink_memory)


def test_a_finished_run_that_is_resumed_says_the_same(quick, digits, tmp_path):
    """It was killed after its last checkpoint, before the result; what the last round told is not told again."""
    capped = quick.changed(**{"uplink": "gamp", "channel.snr_reference": "transmit", "power.cap": True, "rounds": 1})
    whole = simulate(capped, dataset=digits, out=tmp_path)
    (tmp_path / "result.json").unlink()
    again = simulate(capped, dataset=digits, out=tmp_path, resume=True)
    assert whole.row["side_information"]
    assert again.row | {"seconds": 0} == whole.row | {"seconds": 0}


WORDS = ["simulate", "digits", "--uplink", "perfect"]
WORDS += [*flags(QUICK | {"rounds": 12, "engine": "processes", "workers": 2}), "--out"]


@pytest.mark.process
def test_a_run_killed_at_any_instant_resumes_to_the_same_bits(tmp_path):
    assert Command(*WORDS, tmp_path / "whole").wait() == 0
    for rounds in (2, 6):  # twenty instants each of four commands: tests/fuzz/test_random_kills.py
        process = Command(*WORDS, tmp_path / "killed", "--resume")
        wait_for(lambda rounds=rounds: len(read_lines(tmp_path / "killed" / "metrics.jsonl")) >= rounds, seconds=60)
        assert process.kill_after(0) is None, "it ended before it was killed"
    assert Command(*WORDS, tmp_path / "killed", "--resume").wait() == 0
    records = [read_lines(tmp_path / name / "metrics.jsonl") for name in ("whole", "killed")]
    assert without_times(records[0]) == without_times(records[1])
    assert saved_weights(tmp_path / "whole") == saved_weights(tmp_path / "killed")


def saved_weights(run):
    tensors, metadata = read_tensors(run / "checkpoint" / "state.safetensors")
    memories = [read_tensors(path)[0]["memory"] for path in sorted((run / "checkpoint").glob("memory_*"))]
    return metadata["rounds_done"], tensor_hash(tensors["weights"]), [tensor_hash(memory) for memory in memories]


def wait_for_round(path, rounds, process):
    wait_for(lambda: process.poll() is not None or len(read_lines(path)) >= rounds, seconds=60)


@pytest.mark.process
def test_ctrl_c_saves_what_was_done_and_exits_130(tmp_path):
    command = [sys.executable, "-m", "aircomp", *WORDS, tmp_path / "run", "--rounds", "500"]
    # a shell's background jobs ignore Ctrl-C, and so would their children
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, preexec_fn=listen, **quiet) as process:
        wait_for_round(tmp_path / "run" / "metrics.jsonl", 2, process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    run = tmp_path / "run"
    saved = f"what was done is saved in {run}, the same command with --resume --out {run} continues it"
    assert errors == f"aircomp: stopped; {saved}\n"
    assert (tmp_path / "run" / "checkpoint" / "state.safetensors").exists()


def test_a_run_directory_is_never_overwritten_unasked(quick, digits, tmp_path):
    simulate(quick.changed(rounds=1), dataset=digits, out=tmp_path)
    before = (tmp_path / "metrics.jsonl").read_text()
    with pytest.raises(ArtefactError, match="finished run; continue it with --resume"):
        simulate(quick.changed(rounds=1), dataset=digits, out=tmp_path)
    with pytest.raises(ArtefactError, match="other settings"):
        simulate(quick.changed(rounds=1, seed=5), dataset=digits, out=tmp_path, resume=True)
    assert (tmp_path / "metrics.jsonl").read_text() == before
    simulate(quick.changed(rounds=1, seed=5), dataset=digits, out=tmp_path, overwrite=True)
    assert (tmp_path / "metrics.jsonl").read_text() != before


def test_a_damaged_checkpoint_is_one_sentence(quick, digits, tmp_path):
    simulate(quick.changed(rounds=1), dataset=digits, out=tmp_path)
    state = tmp_path / "checkpoint" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-20])
    with pytest.raises(ArtefactError, match="damaged"):
        simulate(quick, dataset=digits, out=tmp_path, resume=True)


def test_a_checkpoint_of_other_settings_is_refused(quick, digits, tmp_path):
    simulate(quick.changed(rounds=1), dataset=digits, out=tmp_path)
    write_tensors(tmp_path / "checkpoint" / "state.safetensors", {"weights": torch.zeros(3)}, {"identity": "x"})
    with pytest.raises(ArtefactError, match="other settings"):
        simulate(quick, dataset=digits, out=tmp_path, resume=True)


def test_divergence_stops_with_the_run_directory_intact(quick, digits, tmp_path):
    wild = {"local.learning_rate": 1000.0, "local.weight_decay": 1.0, "local.epochs": 20}  # 999-fold weights each step
    wild = quick.changed(**wild, rounds=2)
    with pytest.raises(TrainingDiverged, match="round"):
        simulate(wild, dataset=digits, out=tmp_path)
    assert (tmp_path / "config.toml").exists()
    assert (tmp_path / "checkpoint" / "state.safetensors").exists()


def test_results_have_the_fields_people_script_against(quick, digits, tmp_path):
    simulate(quick, dataset=digits, out=tmp_path, uplink="perfect")
    result = read_json(tmp_path / "result.json")
    assert result.keys() == {"command", "version", "config", "seed", "environment", "rows"}
    row = result["rows"][0]
    expected = {"uplink", "snr_db", "snr_reference", "test_accuracy", "test_accuracy_last5", "best_test_accuracy"}
    expected |= {
        "stability",
        "count_accuracy",
        "num_active_mae",
        "pupe",
        "channel_uses_per_parameter",
        "energy_per_device",
        "seconds",
    }
    assert expected <= row.keys()
    record = read_lines(tmp_path / "metrics.jsonl")[0]
    names = {
        "round",
        "test_accuracy",
        "num_active",
        "num_active_hat",
        "count_accuracy",
        "update_nmse",
        "feedback_ratio",
    }
    assert names | {"seconds"} <= record.keys()
    assert row.keys() | record.keys() <= FIELDS.keys(), "every field is defined"
    assert row["test_accuracy"] == read_lines(tmp_path / "metrics.jsonl")[-1]["test_accuracy"]
    assert any(name.startswith("events.out") for name in os.listdir(tmp_path))


def test_a_users_own_torch_dataset_model_and_rule_work(quick):
    rng = torch.Generator().manual_seed(0)

    class Blobs(torch.utils.data.Dataset):
        def __init__(self, size):
            self.labels = torch.randint(0, 3, (size,), generator=rng)
            self.images = torch.randn(size, 1, 5, 5, generator=rng) + self.labels[:, None, None, None]

        def __len__(self):
            return len(self.labels)

        def __getitem__(self, index):
            return self.images[index], int(self.labels[index])

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(25, 3))
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)  # not from torch's global generator, which depends on the tests before

    def halved_mean(counts, codewords):
        return 0.5 * (counts.float() @ codewords) / counts.sum(dim=1, keepdim=True)

    result = simulate(
        quick.changed(rounds=30),  # images are not standardised: three blobs around 0, 1 and 2
        model=model,
        dataset=(Blobs(400), Blobs(100)),
        aggregator=halved_mean,
        uplink="perfect",
    )
    assert result.row["aggregator"].endswith("<locals>.halved_mean")
    assert result.row["model"] == "torch.nn.modules.container.Sequential"
    assert result.row["dataset"].endswith("<locals>.Blobs")
    assert result.row["snr_db"] is None  # perfect aggregation has none
    assert result.test_accuracy > 0.5


@pytest.mark.seconds
def test_a_users_own_decoder_and_channel_carry_a_run(quick, digits):
    codebook = make_codebook("gaussian", 128, 32, rng=torch.Generator().manual_seed(0))

    class Mine:
        """Lets gamp do the work and counts how often it was asked."""

        calls = 0
        codebook = make_codebook("gaussian", 128, 32, rng=torch.Generator().manual_seed(0))

        def decode(self, received, popularity, **side):
            Mine.calls += 1
            return make_decoder("gamp", codebook).decode(received, popularity)

    class Clean:
        def sound(self, num_devices, num_uses, *, rng):
            return Csi(AtDevices(num_devices))

        def carry(self, signal, csi, *, rng):
            return signal.superpose(csi.with_power)

    run = simulate(quick, dataset=digits, decoder=Mine(), channel=Clean())
    assert Mine.calls == 3
    assert run.row["uplink"] == run.experiment.scheme_name == run.experiment.own.decoder
    assert run.row["uplink"].endswith("<locals>.Mine")
    assert run.experiment.own.channel.endswith("<locals>.Clean")
    assert run.row["snr_db"] is None  # the channel's own affair
    assert run.row["channel_uses_per_parameter"] == pytest.approx(32 / 20, rel=0.05)  # the last slot is padded


def test_a_channel_without_a_radio_is_refused(quick, digits):
    with pytest.raises(ConfigError, match="'ideal' has none"):
        simulate(quick, dataset=digits, channel=Awgn(3.0))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"uplink": "amp-dda"}, "uplink.name = 'amp-dda': did you mean 'amp-da'"),
        ({"aggregator": "medean"}, "aggregate.rule = 'medean': did you mean 'mean' or .* 'geometric-median'"),
        ({"data.name": "digit"}, "no dataset 'digit'"),
        ({"model.name": "resnt"}, "model.name = 'resnt': did you mean 'resnet'"),
        ({"participation.high": 100}, "only 6"),
        ({"device": "cuda"}, "use --device cpu"),
    ],
)
def test_bad_settings_are_one_sentence(quick, overrides, message):
    if overrides == {"device": "cuda"} and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ConfigError, match=message):
        simulate(quick, **overrides)
