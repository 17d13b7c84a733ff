"""SIGKILL at seeded instants: what is left is always enough to go on, and the end is the same, bit by bit."""

import csv
import json
import os
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fuzz_material import CHALLENGE, TINY_RUN, TINY_TRAINING, use_tiny_scale, words
from fuzz_values import emit

from aircomp.common.artefact import read_json
from aircomp.common.tensors import read_tensors
from aircomp.studies.scales import SCALES
from helpers.commands import Command
from helpers.records import read_lines

pytestmark = pytest.mark.process

KILLS = 20
"""Of each command with each engine: a quarter before it writes its first file, the others spread evenly over the rest."""
LONG = 600
"""Seconds in which a command ends, on a busy machine, too."""
RUN = TINY_RUN | {"--rounds": "12", "--checkpoint-seconds": "0"}
del RUN["--engine"]
# one command both begins a run and continues it
COMMANDS = {
    "simulate": ["simulate", "digits", *words(RUN), "--uplink", "gamp", "--resume"],
    "collect": ["collect", "digits", *words(RUN), "--raw", "--resume"],
    "reproduce": ["reproduce", "codebook_geometry", "--seeds", "1"],
    "arena": ["arena", "--challenge", "challenge.toml", "--seeds", "2"],
}
KILLED = {
    f"{name} on {engine}": [*args, "--engine", engine, "--workers", "2"]
    for name, args in COMMANDS.items()
    for engine in ("processes", "ray")
}
KILLED["pretrain"] = ["pretrain", "FRAGMENTS", *words(TINY_TRAINING | {"--epochs": "6"}), "--resume"]  # has no engine
FORGOTTEN = ("second", "environment", "checksum", "events.out", ".lock", ".png", ".svg", ".html")
"""Times, and what holds or covers them."""


@pytest.fixture(scope="module")
def fragments(tmp_path_factory) -> Iterator[Path]:
    scales = dict(SCALES)
    use_tiny_scale()
    out = tmp_path_factory.mktemp("fragments")
    args = ["collect", "digits", *words(TINY_RUN | {"--rounds": "4"}), "--raw", "--out", str(out / "f")]
    assert Command(*args).wait(LONG) == 0
    yield out / "f"
    SCALES.update(scales)


@pytest.mark.slow
@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("command", list(KILLED))
def test_killed_at_any_time_it_ends_with_the_same_bits(command, fragments, tmp_path):
    (tmp_path / "challenge.toml").write_text(emit(CHALLENGE))
    args = [str(fragments) if word == "FRAGMENTS" else word for word in KILLED[command]]
    inside, begun = partial(os.chdir, tmp_path), time.time()
    assert Command(*args, "--out", "whole", prepare=inside).wait(LONG) == 0
    duration, expected = time.time() - begun, kept(tmp_path / "whole")
    first = min(path.stat().st_mtime for path in (tmp_path / "whole").rglob("*") if path.is_file()) - begun
    instants = [*spread(KILLS // 4, 0, first), *spread(KILLS - KILLS // 4, first, duration)]
    random.Random(command).shuffle(instants)
    out, killed, ended = 0, 0, 0
    while killed < KILLS or not ended:
        process = Command(*args, "--out", f"killed-{out}", prepare=inside)
        code = process.kill_after(instants[killed]) if killed < KILLS else process.wait(LONG)
        if code is None:
            killed += 1
            continue
        assert code == 0, process.said
        if killed < KILLS:
            instants[killed] *= 0.9  # it was faster than the whole run
        assert kept(tmp_path / f"killed-{out}") == expected
        out, ended = out + 1, ended + 1


@pytest.mark.usefixtures("as_in_production")
def test_runs_of_two_seeds_are_told_apart(tmp_path):
    for out, seed in (("one", "0"), ("again", "0"), ("other", "1")):
        args = ["collect", "digits", *words(TINY_RUN | {"--seed": seed}), "--out", tmp_path / out]
        assert Command(*args).wait(LONG) == 0
    one, again, other = (kept(tmp_path / out) for out in ("one", "again", "other"))
    assert one == again
    differing = {name for name in one if one[name] != other.get(name)}
    assert {"config.toml", "metrics.jsonl", "checkpoint/state.safetensors", "round_00000.safetensors"} <= differing


def spread(number: int, start: float, end: float) -> list[float]:
    """Return so many instants, spread evenly."""
    return [start + (end - start) * (i + 0.5) / number for i in range(number)]


def kept(directory: Path) -> dict[str, Any]:
    """Return all that a command left, but for times: tensors by their bytes, records without seconds."""
    found: dict[str, Any] = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name = str(path.relative_to(directory))
        if any(word in name for word in FORGOTTEN) or path.name.startswith("memory_"):
            continue
        if path.suffix == ".safetensors":
            found[name] = _tensors(path)
        elif path.suffix == ".json":
            found[name] = _timeless(read_json(path))
        elif path.suffix == ".jsonl":
            found[name] = [_timeless(record) for record in read_lines(path)]
        elif path.suffix == ".csv":
            found[name] = _timeless(list(csv.DictReader(path.read_text().splitlines())))
        else:
            found[name] = path.read_text()
    assert found
    return found


def _tensors(path: Path) -> dict[str, Any]:
    tensors, metadata = read_tensors(path)
    # a memory's file is named for the round in which it was written, which a kill changes
    memories = json.loads(metadata.pop("memories", "{}"))
    tensors |= {
        f"memory of {device}": read_tensors(path.parent / name)[0]["memory"] for device, name in memories.items()
    }
    plain = {key: _timeless(_parsed(value)) for key, value in metadata.items()}
    return plain | {name: (str(t.dtype), t.shape, t.numpy().tobytes()) for name, t in tensors.items()}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if not any(word in k for word in FORGOTTEN)}
    return [_timeless(v) for v in value] if isinstance(value, list) else value
