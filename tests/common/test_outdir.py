"""Nothing in an output directory is lost, no two commands share one, and one that cannot be used is one sentence."""

import itertools
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from aircomp.common import outdir
from aircomp.common.outdir import KINDS, MARKER, new_directory, open_directory
from aircomp.errors import ArtefactError, ConfigError
from aircomp.federation.simulate import simulate
from helpers.commands import call
from helpers.settings import SMALL, flags

SMALL_RUN = [*flags(SMALL), "--rounds", "1", "--engine", "serial"]


def content(directory: Path) -> dict[str, bytes | None]:
    """Return all that lies in a directory."""
    return {str(p.relative_to(directory)): p.read_bytes() if p.is_file() else None for p in directory.rglob("*")}


def names_of(command: str) -> list[str]:
    """Return a name for each pattern that the command may delete."""
    return [pattern.replace("*", "00001") for pattern in KINDS[command].files]


CLASHES = [(command, name) for command in KINDS for name in names_of(command)]


@pytest.mark.parametrize(("command", "name"), CLASHES)
def test_foreign_files_with_our_names_are_neither_replaced_nor_touched(tmp_path, command, name):
    foreign = tmp_path / "run" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_text('{"mine": 1}' if name.endswith("json") else "mine = 1")
    before = content(tmp_path)
    for overwrite, resume in ((False, False), (True, False), (False, True)):
        with (
            pytest.raises(ArtefactError, match=r"aircomp did not write or cannot recognise; choose another --out"),
            open_directory(tmp_path / "run", command, overwrite=overwrite, resume=resume),
        ):
            pass
    assert content(tmp_path) == before


@pytest.mark.parametrize(("owner", "command"), [pair for pair in itertools.permutations(KINDS, 2)][::7])
def test_one_command_does_not_replace_what_another_wrote(tmp_path, owner, command):
    with open_directory(tmp_path, owner):
        (tmp_path / names_of(owner)[0]).write_text("x")
    before = content(tmp_path)
    with (
        pytest.raises(ArtefactError, match=f"holds what aircomp {owner} wrote"),
        open_directory(tmp_path, command, overwrite=True),
    ):
        pass
    assert content(tmp_path) == before


@pytest.mark.parametrize("command", KINDS)
def test_overwriting_deletes_the_files_of_the_command_and_no_others(tmp_path, command):
    run = tmp_path / "run"
    others = [run / name for name in ("notes.txt", "checkpoint/mine.txt", "work/mine.json", ".hidden")]
    with open_directory(run, command):
        for path in [*others, *(run / name for name in names_of(command))]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
    if KINDS[command].signs:
        with pytest.raises(ArtefactError, match="--overwrite"), open_directory(run, command):
            pass
    assert all((run / name).exists() for name in names_of(command))
    with open_directory(run, command, overwrite=True):
        left = {path for path in run.rglob("*") if path.is_file()}
        assert left == {*others, run / MARKER, run / ".lock"}
    assert json.loads((run / MARKER).read_text())["kind"] == command


def test_a_run_is_resumed_or_replaced_but_not_both(tmp_path):
    with pytest.raises(ConfigError, match="both resume and overwrite were given; expected one"):
        simulate("digits", out=tmp_path / "run", resume=True, overwrite=True, **SMALL)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("again", [{"resume": True}, {"overwrite": True}])
def test_what_a_killed_write_left_is_deleted(tmp_path, again):
    ours = [".state.safetensors.4711.tmp", ".memory_000003_000002.safetensors.4711.tmp"]
    others = [tmp_path / name for name in (".notes.txt.4711.tmp", ".result.json.old.tmp")]
    half = [tmp_path / ".result.json.4711.tmp", *(tmp_path / "checkpoint" / name for name in ours)]
    with open_directory(tmp_path, "simulate"):
        (tmp_path / "checkpoint").mkdir()
        for path in [*half, *others]:
            path.write_text("x")
    with open_directory(tmp_path, "simulate", **again):
        assert not any(path.exists() for path in half)
        assert all(path.exists() for path in others)


def test_nothing_is_deleted_through_a_link(tmp_path):
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    elsewhere.mkdir()
    (elsewhere / "state.safetensors").write_text("mine")
    (elsewhere / ".state.safetensors.4711.tmp").write_text("mine")
    with open_directory(run, "simulate"):
        (run / "config.toml").write_text("")
        (run / "checkpoint").symlink_to(elsewhere)
    with pytest.raises(ArtefactError, match="is a link"), open_directory(run, "simulate", overwrite=True):
        pass
    assert (elsewhere / "state.safetensors").read_text() == "mine"
    assert (elsewhere / ".state.safetensors.4711.tmp").read_text() == "mine"


def test_a_directory_without_a_marker_is_not_ours(tmp_path, capsys):
    out = tmp_path / "cost"
    assert call("cost", "--parameters", "99", "--uplink", "gamp", "--out", out) == 0
    (out / MARKER).unlink()
    assert call("cost", "--parameters", "99", "--uplink", "gamp", "--out", out, "--overwrite") == 2
    assert "which aircomp did not write" in capsys.readouterr().err


def test_a_command_that_fails_before_it_wrote_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("evaluate", "--fragments", "nowhere") == 2
    assert call("evaluate", "--fragments", "nowhere", "--out", "here") == 2
    assert call("simulate", "digits", "--uplink", "gmap") == 2
    assert list(tmp_path.iterdir()) == []


def _file(place: Path) -> Path:
    (place / "file").write_text("mine")
    return place / "file"


def _below_a_file(place: Path) -> Path:
    return _file(place) / "below" / "run"


def _loop(place: Path) -> Path:
    (place / "loop").symlink_to(place / "loop")
    return place / "loop"


def _below_a_loop(place: Path) -> Path:
    return _loop(place) / "run"


def _dangling(place: Path) -> Path:
    (place / "link").symlink_to(place / "file" / "nowhere")
    _file(place)
    return place / "link"


def _too_long(place: Path) -> Path:
    return place / ("x" * 300)


def _path_too_long(place: Path) -> Path:
    return place.joinpath(*["y" * 200] * 30)


def _unwritable(place: Path) -> Path:
    return Path("/proc/aircomp") if os.path.isdir("/proc") else Path("/aircomp")


def _in_a_device(place: Path) -> Path:
    return Path("/dev/null/run")


UNUSABLE = [_file, _below_a_file, _loop, _below_a_loop, _dangling, _too_long, _path_too_long, _unwritable, _in_a_device]
COMMANDS = {
    "simulate": ["digits", *SMALL_RUN],
    "collect": ["digits", *SMALL_RUN],
    "demo": ["--rounds", "1"],
    "reproduce": ["quantisation", "--seeds", "1"],
    "cost": ["--parameters", "99", "--uplink", "gamp"],
    "explain": [],
    "export": [],
    "evaluate": ["--fragments", "FRAGMENTS"],
    "pretrain": ["FRAGMENTS"],
}


@pytest.fixture(scope="module")
def fragments(tmp_path_factory):
    """Return a small collection."""
    out = tmp_path_factory.mktemp("fragments") / "fragments"
    assert call("collect", "digits", *SMALL_RUN, "--rounds", "4", "--out", out) == 0
    return out


@pytest.mark.seconds
@pytest.mark.parametrize("make", UNUSABLE)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_out_that_cannot_be_used_is_one_sentence(tmp_path, monkeypatch, capfd, fragments, command, make):
    monkeypatch.chdir(tmp_path)
    out = make(tmp_path)
    if command == "export" and make in (_loop, _dangling):
        pytest.skip("a link is a file to write beside")
    before = content(tmp_path)
    args = [str(fragments) if arg == "FRAGMENTS" else arg for arg in COMMANDS[command]]
    assert call(command, *args, "--out", out) == 2
    errors = capfd.readouterr().err
    assert errors.count("\n") == 1
    assert errors.startswith("aircomp: ")
    assert before.items() <= content(tmp_path).items()


@pytest.mark.parametrize("words", [["--out", ""], ["--out="], ["--out", "  "]])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_empty_out_is_not_the_current_directory(tmp_path, monkeypatch, capfd, command, words):
    monkeypatch.chdir(tmp_path)
    assert call(command, *COMMANDS[command], *words) == 2
    assert "output directory is an empty string" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_out_is_refused_in_python_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"out is .*; expected a path"):
        simulate("digits", rounds=1, out="")


def choose(number, start):
    """Take five directories as fast as others do; leave some of them empty."""
    start.wait(60)
    for _ in range(5):
        with new_directory("x") as directory, open_directory(directory, "cost"):
            (directory / "result.json").write_text(str(number))
        with new_directory("x"):
            pass


@pytest.mark.process
def test_commands_started_at_once_never_share_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    context = multiprocessing.get_context("fork")
    start = context.Barrier(6)
    processes = [context.Process(target=choose, args=(number, start)) for number in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 6
    chosen = [path.read_text() for path in tmp_path.glob("runs/x*/result.json")]
    assert sorted(chosen) == sorted("012345" * 5)


def test_collecting_over_a_collection_in_use_deletes_nothing(tmp_path, fragments):
    before = content(fragments)
    with outdir.lock(fragments):
        assert call("collect", "digits", *SMALL_RUN, "--out", fragments, "--overwrite") == 2
    assert content(fragments) == before


@pytest.mark.seconds
def test_a_run_with_a_relative_layer_resumes_from_elsewhere_and_under_any_name(tmp_path, monkeypatch):
    from aircomp.layer.communication import CommunicationLayer

    here, elsewhere = tmp_path / "Größe 漢字", tmp_path / "elsewhere"
    elsewhere.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    CommunicationLayer.load().save("schicht ü")
    args = ["--uplink", "gamp-net", "--layer", "schicht ü", "--out", "läuft"]
    assert call("simulate", "digits", *SMALL_RUN, *args) == 0
    monkeypatch.chdir(elsewhere)
    assert call("simulate", "--resume", f"--out={here / 'läuft'}", "--rounds", "2") == 0
    assert len((here / "läuft" / "metrics.jsonl").read_text().splitlines()) == 2
    monkeypatch.chdir(here)
    assert call("simulate", "digits", *SMALL_RUN, *args, "--rounds", "3", "--resume") == 0
    assert len(Path("läuft/metrics.jsonl").read_text().splitlines()) == 3
