"""Comparisons and sweeps: challenges and schemes in TOML files, names of both, and the files of finished jobs."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz_arguments import IN, TAKE_TIME, names
from fuzz_case import Case
from fuzz_files import damage, mutated_json
from fuzz_material import ARENA, CHALLENGE, REPRODUCE, swept
from fuzz_values import PATHS, WORDS, emit, misspelt, mutated, odd_value

SETTINGS: dict[str, list[Any]] = {
    "channel.snr_db": [-100, 0, 200, 201.0, 400, 1e30, "5", None],
    "channel.kind": ["awgn", "fading", "standard", 3],
    "channel.snr_reference": ["transmit", "round", "x"],
    "uplink.codeword_length": [1, 32, 64, 0, -1, 2**40],
    "uplink.repeat": [1, 3, "auto", "often"],
    "uplink.name": ["analog", "gamp", "x", 1],
    "power.control": ["none", "inversion", "x"],
    "power.max_amplitude": [1.0, 0, -1, 1e-30, 1e30],
    "aggregate.rule": ["mean", "coordinate-median", "sign-vote", "x"],
    "corruption.kind": ["off", "sign-flip", "x"],
    "partition.kind": ["iid", "dirichlet", "x"],
    "seed": [0, -1, "x"],
    "rounds": [1, 0, -1],
    "nothing.such": [1],
    "channel": [{"snr_db": 5}, 1],
}
"""What a challenge may set: values that fit, and values that do not."""


def make(name: str) -> Case:
    """Make the case of a name."""
    rng = random.Random(name)
    how = rng.choice([_challenge, _challenge, _scheme, _given, _jobs, _jobs, _sweep])
    return how(name, rng)


def _challenge(name: str, rng: random.Random) -> Case:
    """Let the arena answer a question of somebody else's."""
    told = json.loads(json.dumps(CHALLENGE))
    for _ in range(rng.choice([0, 1, 1, 2])):
        path = rng.choice(list(SETTINGS))
        group = told["vary"] if rng.random() < 0.5 else told["settings"]
        group[path] = rng.choice(SETTINGS[path])
        if group is told["vary"]:
            told["vary"][path] = [rng.choice(SETTINGS[path]) for _ in range(rng.choice([2, 2, 2, 1, 3, 0]))]
    if rng.random() < 0.3:
        told[rng.choice(list(told))] = odd_value(rng)
    told = mutated(rng, told) if rng.random() < 0.4 else told
    task = rng.choice([[], [], [], ["--task", "training"]])
    told = bearable(told)
    if task and isinstance(told, dict) and isinstance(told.get("settings"), dict):
        told["settings"].setdefault("rounds", 1)  # many by default
    text = emit(told).encode("utf-8", "surrogatepass")
    return Case(name, [*ARENA, *task, "--challenge", "c.toml", "--out", "out"], prepare=_writes("c.toml", text))


def bearable(value: Any, path: str = "") -> Any:
    """Return nested settings in which nothing is large that only means more work."""
    if isinstance(value, dict):
        return {key: bearable(each, f"{path}.{key}") for key, each in value.items()}
    if isinstance(value, list):
        return [bearable(each, path) for each in value]
    longer = isinstance(value, int | float) and any(
        word in path for word in (*TAKE_TIME, "devices", "total", "width", "low", "high")
    )
    return 2 if longer and value > 4 else value


def _scheme(name: str, rng: random.Random) -> Case:
    """Let the arena measure a scheme that stands in a file."""
    told: dict[str, Any] = {"uplink": {"name": rng.choice(names()), "codeword_length": 32}, "aggregate": {}}
    told = bearable(mutated(rng, told))
    given = rng.choice([["mine.toml"], ["mine.toml", "analog"], ["mine.toml", "mine.toml"], ["mine.toml", "ideal"]])
    args = [*ARENA, "--challenge", f"{IN}/challenge.toml", "--scheme", *given, "--out", "out"]
    return Case(name, args, prepare=_writes("mine.toml", emit(told).encode("utf-8", "surrogatepass")))


def _given(name: str, rng: random.Random) -> Case:
    """Name challenges and schemes that may not be there."""
    pool = [*names(), *WORDS, *PATHS, "mine:Fine", "mine:Same", "mine:Odd", "mine:Nothing", "os:getcwd", "mine:", ":"]
    schemes = [rng.choice(pool) if rng.random() < 0.7 else misspelt(rng, rng.choice(pool)) for _ in range(2)]
    schemes = [word for word in schemes if not word.startswith("-")]
    challenge = f"{IN}/challenge.toml" if rng.random() < 0.8 else rng.choice([*PATHS, *WORDS[1:5], "awgn.toml"])
    args = [*ARENA, f"--challenge={challenge}", "--scheme", "analog", *schemes, "--out", "out"]
    source = 'from aircomp.schemes.ideal import Ideal\nclass Fine(Ideal):\n    name = "fine"\nclass Same(Ideal):\n'
    source += f'    name = "analog"\nclass Odd(Ideal):\n    name = {rng.choice(WORDS)!r}\n'
    return Case(name, args, prepare=_writes("mine.py", source.encode()))


def _jobs(name: str, rng: random.Random) -> Case:
    """Go on where other jobs, damaged jobs or forged ones are."""
    what, args = rng.choice(
        [
            ("arena", [*ARENA, "--challenge", f"{IN}/challenge.toml", "--out", "arena"]),
            ("reproduce", [*REPRODUCE, "--out", "reproduce"]),
            ("sweep", []),
        ]
    )
    seed = rng.randrange(2**32)

    def prepare(here: Path) -> None:
        shutil.copytree(here / IN / what, here / what)
        odd_jobs(random.Random(seed), here / what)

    if what == "sweep":
        return Case(name, call=lambda: swept(Path("sweep")), about="sweep, jobs damaged", prepare=prepare)
    return Case(name, args, about="jobs damaged", prepare=prepare)


def odd_jobs(rng: random.Random, directory: Path) -> None:
    """Swap, damage or forge the files of jobs below a directory."""
    files = sorted(path for path in directory.rglob("*.json") if "checksum" in path.read_text())
    one, other = rng.choice(files), rng.choice(files)
    match rng.randrange(4):
        case 0:
            content = one.read_bytes()
            one.write_bytes(other.read_bytes())
            other.write_bytes(content)
        case 1:
            damage(rng, one)
        case 2:
            one.write_bytes(mutated_json(rng, one.read_text()))
        case _ if directory.name != "reproduce":  # of which every kind of job has fields of its own
            forge(rng, one)


def forge(rng: random.Random, path: Path) -> None:
    """Write other results with the checksum that they need."""
    from aircomp.studies.jobs import _checksum

    content = json.loads(path.read_text())
    key = content.pop("key")
    content.pop("checksum")
    told = mutated(rng, {name: content[name] for name in ("rows", "seconds")})
    content = content | told if isinstance(told, dict) else {}
    path.write_text(json.dumps({"key": key, "checksum": _checksum(content)} | content))


def _sweep(name: str, rng: random.Random) -> Case:
    """Sweep over odd settings."""
    over: Any = {path: rng.choices(SETTINGS[path], k=2) for path in rng.sample(list(SETTINGS), rng.choice([1, 1, 2]))}
    over = bearable(mutated(rng, over) if rng.random() < 0.3 else over)
    about = f"sweep over {over!r:.80}"
    return Case(name, call=lambda: swept(Path("out"), over), about=about)


def _writes(file: str, content: bytes) -> Callable[[Path], None]:
    def write(here: Path) -> None:
        (here / file).write_bytes(content)

    return write
