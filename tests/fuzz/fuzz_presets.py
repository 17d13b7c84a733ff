"""TOML presets: the real ones with parts deleted, doubled, retyped, nested and made huge, and with broken text."""

import random
import tomllib
from importlib import resources
from pathlib import Path

from fuzz_case import Case
from fuzz_material import TINY_RUN, TINY_TRAINING, words
from fuzz_values import emit, flip_bytes, mutated


def make(name: str) -> Case:
    """Make the case of a name."""
    rng = random.Random(name)
    package = resources.files("aircomp")
    if rng.random() < 0.7:
        text = (package / "presets" / "digits.toml").read_text()
        args, tiny = [rng.choice(["simulate", "collect"]), "preset.toml"], TINY_RUN
    else:
        text = (package / "train" / rng.choice(["presets/short.toml", "paper_presets/paper.toml"])).read_text()
        args, tiny = ["pretrain", "../../inputs/fragments", "--preset", "preset.toml"], TINY_TRAINING
    content = mutated_toml(rng, text)
    return Case(name, [*args, *words(tiny)], prepare=lambda here: _write(here, content))


def _write(here: Path, content: bytes) -> None:
    (here / "preset.toml").write_bytes(content)


def mutated_toml(rng: random.Random, text: str) -> bytes:
    """Return a TOML file with something wrong in it, or nothing at all."""
    lines = text.splitlines()
    match rng.randrange(10):
        case 0:
            return flip_bytes(rng, text.encode())
        case 1:  # a line, or a table, twice
            i, j = sorted(rng.randrange(len(lines) + 1) for _ in range(2))
            return "\n".join(lines[:j] + lines[i:j] + lines[j:]).encode()
        case 2:
            deep = rng.choice([50, 500, 20_000])
            opening, closing = rng.choice([("[", "]"), ("{a=", "}")])
            return f"rounds = {opening * deep}1{closing * deep}\n{text}".encode()
        case 3:
            key = rng.choice(["rounds", "seed", "uplink", "workers"])
            value = rng.choice(["1" * 5000, "1979-05-27", "0x7f", "1e999", "inf", "nan", "'''x'''", '"\\uD800"', "+1"])
            rest = "\n".join(line for line in lines if not line.startswith(key))
            return f"{key} = {value}\n{rest}".encode()
        case 4:
            return rng.choice([b"", b"\xef\xbb\xbf", b"\x00", b"\xff", b"# nothing\n", b"[", b"=", b"a.b.c = 1\n" * 3])
        case _:
            return emit(mutated(rng, tomllib.loads(text))).encode("utf-8", "surrogatepass")
