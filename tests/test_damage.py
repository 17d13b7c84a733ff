"""Every file that we read, damaged in every way: an error of one sentence, never a crash, a hang or a wrong answer."""

import json
import os
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from aircomp.common.tensors import read_tensors, write_tensors
from aircomp.data.images import load
from aircomp.errors import AirCompError, ArtefactError
from aircomp.federation.experiment import Experiment, load_experiment, read_toml
from aircomp.federation.simulate import simulate
from aircomp.layer.analog_code import AnalogCode
from aircomp.layer.blind_net import BlindLayer
from aircomp.layer.communication import CommunicationLayer
from aircomp.layer.joint_code import JointLayer
from aircomp.report.runs import read_runs
from aircomp.studies.jobs import Job
from aircomp.train.blind import pretrain_blind
from aircomp.train.code import pretrain_code
from aircomp.train.fit import pretrain
from aircomp.train.fragments import load_round
from aircomp.train.joint import pretrain_joint
from aircomp.train.recipe import BlindTrainingSettings, CodeSettings, JointTrainingSettings, load_preset
from helpers.fragments import save_small_rounds
from helpers.layers import describe_anew
from helpers.settings import RECIPE, SMALL

pytestmark = pytest.mark.seconds

SETTINGS = SMALL | {
    "local.epochs": 1,
    "uplink": "perfect",
    "engine": "serial",
    "rounds": 1,
    "server.kind": "fedadam",
    "server.learning_rate": 0.01,
}


def experiment() -> Experiment:
    return load_experiment("digits").changed(**SETTINGS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """Return a directory with one of everything that we write."""
    place = tmp_path_factory.mktemp("whole")
    simulate(experiment(), dataset=load("digits"), out=place / "run")
    save_small_rounds(place / "fragments", raw=True)
    (place / "fragments" / "fragments.json").write_text('{"order": "popularity"}')
    pretrain([place / "fragments"], load_preset("short").changed(**RECIPE), place / "layer")
    pretrain_code([place / "fragments"], CODE, place / "code")
    pretrain_blind([place / "fragments"], RECEIVER, place / "receiver")
    pretrain_joint([place / "fragments"], JOINT, place / "joint")
    JOB.keep(place, {"rows": [{"accuracy": 1.0}]}, seconds=1.0)
    return place


JOB = Job("k", {})
CODE = CodeSettings.parse({"epochs": 1, "codeword_length": 8, "code": {"width": 4}, "data": {"batch_slots": 20}})
RECEIVER = BlindTrainingSettings.parse({"epochs": 1, "codeword_length": 8, "data": {"batch_slots": 20}})
JOINT = JointTrainingSettings.parse({"epochs": 1, "codeword_length": 8, "data": {"batch_slots": 20}})


def resume(place: Path) -> None:
    simulate(experiment(), dataset=load("digits"), out=place / "run", resume=True)


def train_on(place: Path) -> None:
    pretrain([place / "fragments"], load_preset("short").changed(**RECIPE), place / "layer", resume=True)


READERS: dict[str, Callable[[Path], object]] = {
    "run/config.toml": lambda place: read_toml(place / "run" / "config.toml"),
    "run/.aircomp.json": resume,
    "run/metrics.jsonl": resume,
    "run/checkpoint/state.safetensors": resume,
    "run/checkpoint/MEMORY": resume,
    "run/model.safetensors": lambda place: simulate(experiment().changed(start=str(place / "run"))),
    "run/result.json": lambda place: read_runs([place / "run"]),
    "layer/config.toml": train_on,
    "layer/metrics.jsonl": train_on,
    "layer/checkpoint/training.safetensors": train_on,
    "layer/layer.json": lambda place: CommunicationLayer.load(place / "layer"),
    "layer/layer.safetensors": lambda place: CommunicationLayer.load(place / "layer"),
    "code/layer.json": lambda place: AnalogCode.load(place / "code"),
    "code/layer.safetensors": lambda place: AnalogCode.load(place / "code"),
    "receiver/layer.json": lambda place: BlindLayer.load(place / "receiver"),
    "receiver/layer.safetensors": lambda place: BlindLayer.load(place / "receiver"),
    "joint/layer.json": lambda place: JointLayer.load(place / "joint"),
    "joint/layer.safetensors": lambda place: JointLayer.load(place / "joint"),
    "fragments/round_00000.safetensors": lambda place: load_round(place / "fragments" / "round_00000.safetensors"),
    f"{JOB.key}.json": JOB.payload,
}
OPTIONAL = {"layer/config.toml", "run/model.safetensors", f"{JOB.key}.json"}
OPTIONAL |= {"run/checkpoint/state.safetensors", "layer/checkpoint/training.safetensors", "run/.aircomp.json"}
"""Files without which there is less, or nothing yet."""


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def _huge(path: Path) -> None:
    os.truncate(path, 2**40)  # sparse: it takes no room


KINDS_OF_FILES = [_fifo, _device, _directory, _loop, _huge]


@pytest.fixture
def place(whole, tmp_path) -> Path:
    """Return a copy that may be damaged."""
    shutil.copytree(whole, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def find(place: Path, name: str) -> Path:
    if name.endswith("MEMORY"):
        return next((place / "run" / "checkpoint").glob("memory_*"))
    return place / name


def refused(name: str, place: Path) -> None:
    """See that reading ends in one sentence that says what to do."""
    with pytest.raises(AirCompError) as caught:
        READERS[name](place)
    message = str(caught.value)
    assert "\n" not in message.strip()
    assert len(message) < 1000
    assert ";" in message or "did you mean" in message, message


def test_what_is_whole_is_read(place):
    for read in set(READERS.values()):
        read(place)


@pytest.mark.parametrize("name", [name for name in READERS if name not in OPTIONAL])
def test_what_is_missing_is_named(place, name):
    find(place, name).unlink()
    refused(name, place)


@pytest.mark.parametrize("damage", KINDS_OF_FILES)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_file_is_not_opened(place, name, damage):
    damage(find(place, name))
    refused(name, place)


def broken_texts(text: str) -> Iterator[bytes]:
    data = text.encode()
    yield b"\xff\xfe\x00" + data
    yield b"\0" * 100
    yield data[: len(data) // 2] + b"\n}{\n" + data[len(data) // 2 :]
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        for levels in (100, 100_000):
            yield opening * levels + b"1" + closing * levels + b"\n" + data
    yield b"x = " + b"[" * 1000 + b"]" * 1000
    yield b".".join([b"a"] * 30_000) + b" = 1"
    for value in (b"null", b"3", b"[]", b'"text"', b"[1, 2]"):
        yield value + b"\n" + value
    yield b'{"rows": 1, "order": [], "kind": 3, "round": 1, "epoch": 1, "num_active": "many"}'


@pytest.mark.parametrize("name", [name for name in READERS if not name.endswith(("safetensors", "MEMORY"))])
def test_text_that_is_not_ours_is_refused(place, name):
    path = find(place, name)
    for text in broken_texts(path.read_text()):
        path.write_bytes(text)
        refused(name, place)


TENSORS = [name for name in READERS if name.endswith(("safetensors", "MEMORY"))]


def header_and_data(path: Path) -> tuple[dict, bytes]:
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def put(path: Path, header: dict, data: bytes) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def broken_files(path: Path) -> Iterator[None]:
    """Damage a file in one way after the other, starting from the whole one."""
    content = path.read_bytes()
    for size in (0, 4, 8, 20, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        yield
    for claim in (0, 2**20, 2**40, 2**63, 2**64 - 1):
        path.write_bytes(struct.pack("<Q", claim) + content[8:])
        yield
    path.write_bytes(content)
    header, data = header_and_data(path)
    name = next(key for key in header if key != "__metadata__")
    for change in (
        {"shape": [2**40]},
        {"shape": [2**62, 4]},
        {"shape": [-1]},
        {"shape": "all"},
        {"dtype": "F1"},
        {"data_offsets": [0, 2**50]},
        {"data_offsets": [8, 0]},
    ):
        put(path, header | {name: header[name] | change}, data)
        yield
    put(path, {"__metadata__": {}}, b"")
    yield


@pytest.mark.parametrize("name", TENSORS)
def test_tensor_files_that_are_damaged_are_refused_without_the_memory_they_claim(place, name):
    path = find(place, name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in broken_files(path):
        refused(name, place)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def wrong(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Return tensors that nobody can take for this one."""
    if tensor.is_floating_point() and tensor.numel():
        for value in (torch.nan, torch.inf, -torch.inf):
            bad = tensor.clone()
            bad.view(-1)[-1] = value
            yield bad
    yield tensor.new_zeros((0, *tensor.shape[1:]) if tensor.ndim else (0,))
    yield tensor.new_zeros(())[None, None, None, None]
    yield torch.cat([tensor.reshape(-1), tensor.reshape(-1).new_zeros(3)])
    yield tensor.to(torch.complex64)
    yield torch.zeros(tensor.shape, dtype=torch.bool)
    yield tensor.long() if tensor.is_floating_point() else tensor.float()


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_another_type_shape_or_content_are_refused(place, name):
    path = find(place, name)
    tensors, metadata = read_tensors(path)
    tensors = {key: value.clone() for key, value in tensors.items()}
    hashed = name.startswith("layer/layer")
    for key in sorted(tensors)[:: max(1, len(tensors) // 3)]:
        for bad in wrong(tensors[key]):
            if bad.dtype == tensors[key].dtype and torch.equal(bad, tensors[key]):
                continue
            write_tensors(path, tensors | {key: bad}, metadata)
            if hashed:
                describe_anew(place / "layer")
            refused(name, place)
        optional = name.startswith("fragments") and key not in ("indices", "popularity", "quant_codebook")
        write_tensors(path, {k: v for k, v in tensors.items() if k != key}, metadata)
        if hashed:
            describe_anew(place / "layer")
        if not optional:
            refused(name, place)


@pytest.mark.parametrize("name", ["run/checkpoint/state.safetensors", "layer/checkpoint/training.safetensors"])
@pytest.mark.parametrize("value", ["", "null", "-1", "NaN", "[]", '{"a": 1}', '{"0": "../x"}', "9" * 5000, "[" * 5000])
def test_progress_that_makes_no_sense_is_refused(place, name, value):
    path = find(place, name)
    tensors, metadata = read_tensors(path)
    tensors = {key: value.clone() for key, value in tensors.items()}
    for key in metadata:
        if (key, value) in {("moments", "[]"), ("server_step", "-1"), ("side_information", "[]")}:
            continue
        write_tensors(path, tensors, metadata | {key: value})
        refused(name, place)


def test_metrics_that_are_gone_or_short_stop_a_resumed_run(place):
    path = place / "run" / "metrics.jsonl"
    line = path.read_text()
    for text in ("", line.replace('"round": 1', '"round": 2'), line.replace('"num_active": 2', '"num_active": "2"')):
        assert text != line
        path.write_text(text)
        with pytest.raises(ArtefactError, match=r"does not hold a record for each of the 1 rounds"):
            resume(place)


def test_files_of_the_right_kind_are_still_read_by_others(place):
    with safe_open(place / "run" / "checkpoint" / "state.safetensors", framework="pt") as file:
        assert "weights" in file.keys()  # noqa: SIM118 (it is no dictionary)
