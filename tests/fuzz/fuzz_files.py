"""Files that we read: copies of what real commands left, one or two of them damaged, then the command that reads them."""

import json
import os
import random
import shutil
import struct
from pathlib import Path
from typing import Any

from fuzz_arguments import IN
from fuzz_case import Case
from fuzz_material import ARENA, REPRODUCE, TINY_RUN, TINY_TRAINING, words
from fuzz_presets import mutated_toml
from fuzz_values import flip_bytes, mutated, odd_value

RUN, TRAINING = words(TINY_RUN), words(TINY_TRAINING)
EVALUATE = ["evaluate", "--snr-db", "5", "--slots", "4", "--decoder", "gamp"]
IMAGES = ["simulate", "digits", *RUN, "--out", "out", "--data-dir", "data", "--data.name"]

READERS: list[tuple[str, list[str]]] = [
    ("run", ["simulate", "--resume", "--out", "run", "--rounds", "3"]),
    ("run", ["simulate", "--resume", "--out", "run", "--rounds", "3"]),
    ("run", ["simulate", "digits", *RUN, "--out", "run", "--overwrite"]),
    ("run", ["report", "run", "--out", "page"]),
    ("start", ["simulate", "digits", *RUN, "--start", "start", "--out", "out"]),
    ("fragments", ["collect", "--resume", "--out", "fragments", "--rounds", "5"]),
    ("fragments", ["collect", "digits", *RUN, "--out", "fragments", "--overwrite"]),
    ("fragments", [*EVALUATE, "--fragments", "fragments"]),
    ("fragments", [*EVALUATE, "--fragments", "fragments"]),
    ("fragments", ["pretrain", "fragments", *TRAINING, "--out", "layer"]),
    ("layer", ["simulate", "digits", *RUN, "--uplink", "gamp-net", "--layer", "layer", "--out", "out"]),
    ("layer", ["explain", "--layer", "layer", "--out", "out"]),
    ("layer", ["export", "layer", "--format", "torch", "--out", "decoder.pt2"]),
    ("layer", ["export", "layer", "--format", "onnx", "--out", "decoder.onnx"]),
    ("layer", ["evaluate", *EVALUATE[1:-1], "gamp-net", "--layer", "layer", "--fragments", f"{IN}/fragments"]),
    ("layer", ["pretrain", f"{IN}/fragments", "--resume", "--out", "layer", "--epochs", "2"]),
    ("layer", ["pretrain", f"{IN}/fragments", *TRAINING, "--overwrite", "--out", "layer"]),
    ("evaluate", ["report", "evaluate"]),
    ("reproduce", [*REPRODUCE, "--out", "reproduce"]),
    ("reproduce", ["report", "reproduce", "--out", "page"]),
    ("arena", [*ARENA, "--challenge", f"{IN}/challenge.toml", "--out", "arena"]),
    ("arena", ["report", "arena", "--out", "page"]),
    ("data", [*IMAGES, "fashion-mnist"]),
    ("data", [*IMAGES, "cifar10"]),
    ("data", ["data", "list", "--data-dir", "data"]),
    (
        "trace.txt",
        ["simulate", "digits", *RUN, "--participation.kind", "trace", "--participation.trace", "trace.txt"],
    ),
]


def make(name: str) -> Case:
    """Make the case of a name."""
    rng = random.Random(name)
    what, args = rng.choice(READERS)
    seed = rng.randrange(2**32)
    return Case(name, list(args), about=f"{what} damaged", prepare=lambda here: prepare(here, what, seed))


def prepare(here: Path, what: str, seed: int) -> None:
    """Copy what is to be read and damage it."""
    rng = random.Random(seed)
    original = here / IN / what
    if original.is_file():
        shutil.copy(original, here / what)
        damage(rng, here / what)
        return
    shutil.copytree(original, here / what)
    read = sorted(p for p in (here / what).rglob("*") if p.is_file() and _is_read(p))
    for path in rng.sample(read, min(len(read), rng.choice([1, 1, 1, 2]))):
        damage(rng, path)


def _is_read(path: Path) -> bool:
    return path.suffix in (".safetensors", ".json", ".jsonl", ".toml", ".gz", ".bin", ".html") or path.name == ".lock"


def damage(rng: random.Random, path: Path) -> None:
    """Damage one file, mostly in a way that only its own format allows."""
    if rng.random() < 0.25 or path.name == ".lock":
        _replace(rng, path)
        return
    content = path.read_bytes()
    match path.suffix if rng.random() < 0.8 else "":
        case ".safetensors":
            path.write_bytes(mutated_safetensors(rng, content))
        case ".json":
            path.write_bytes(mutated_json(rng, content.decode()))
        case ".jsonl":
            path.write_bytes(mutated_lines(rng, content.decode()))
        case ".toml":
            path.write_bytes(mutated_toml(rng, content.decode()))
        case _:
            path.write_bytes(flip_bytes(rng, content))


def _replace(rng: random.Random, path: Path) -> None:
    """Put something else in place of a file."""
    kind = rng.choice(["missing", "directory", "fifo", "loop", "dangling", "zero", "full", "empty", "vast", "link"])
    if kind == "link":  # a link to the file itself is as good as the file
        path.rename(path.with_name("moved"))
        path.symlink_to("moved")
        return
    path.unlink()
    match kind:
        case "directory":
            (path / "inside").mkdir(parents=True)
        case "fifo":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to("nothing-here")
        case "zero":
            path.symlink_to("/dev/zero")
        case "full":
            path.symlink_to("/dev/full")
        case "empty":
            path.write_bytes(b"")
        case "vast":  # gigabytes of zeros that take no room on disk
            path.touch()
            os.truncate(path, 8 << 30)


def mutated_json(rng: random.Random, text: str) -> bytes:
    """Return a JSON file with other content, or with a broken one."""
    if rng.random() < 0.15:
        deep = rng.choice([100, 100_000])
        nested = [b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep]
        return rng.choice([*nested, b"[]", b"null", b"{}", b"1", b'"x"', b"1" * 5000, b'{"a": 1e999}', b"NaN"])
    return json.dumps(mutated(rng, json.loads(text))).encode()


def mutated_lines(rng: random.Random, text: str) -> bytes:
    """Return JSON lines lost, doubled, reordered or changed."""
    lines = text.splitlines()
    place = rng.randrange(len(lines))
    match rng.randrange(6):
        case 0:
            del lines[place]
        case 1:
            lines.insert(place, lines[place])
        case 2:
            rng.shuffle(lines)
        case 3:
            lines.insert(
                place, rng.choice(["", "x", "[]", "null", "1", '{"round": 1}', '{"round": "x"}', "[" * 100_000])
            )
        case _:
            lines[place] = json.dumps(mutated(rng, json.loads(lines[place])))
    return ("\n".join(lines) + "\n").encode()


def mutated_safetensors(rng: random.Random, content: bytes) -> bytes:
    """Return a safetensors file with another header, other tensors or other claims."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    match rng.randrange(4):
        case 0:  # claims of the header's length
            wrong = rng.choice([0, 1, length - 1, length + 1, len(content), 2**31, 2**40, 2**63, 2**64 - 1])
            return struct.pack("<Q", wrong) + content[8:]
        case 1:
            return _safetensors(mutated(rng, header), data)
        case 2:
            metadata = header.get("__metadata__") or {"x": "1"}
            key = rng.choice(list(metadata))
            metadata[key] = rng.choice(
                ["", "x", "-1", "[]", "{}", "null", "99999999999", "nan", '{"0": "../x"}', "1.5"]
            )
            if rng.random() < 0.3:
                del metadata[key]
            return _safetensors(header | {"__metadata__": metadata}, data)
        case _:
            return _other_tensors(rng, header, data)


def _safetensors(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _other_tensors(rng: random.Random, header: dict[str, Any], data: bytes) -> bytes:
    """Write the tensors anew, some of them lost, renamed, retyped, reshaped, or with other numbers in them."""
    metadata = header.pop("__metadata__", None)
    tensors = {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])]) for k, v in header.items()}
    for name in rng.sample(sorted(tensors), min(len(tensors), rng.choice([1, 1, 2]))):
        dtype, shape, part = tensors[name]
        match rng.randrange(8):
            case 0:
                del tensors[name]
            case 1:
                tensors[f"{name}x"] = tensors.pop(name)
            case 2:  # the same bytes as another type of the same size
                same = {"F32": ["I32", "U32"], "U8": ["I8", "BOOL", "F8_E4M3"], "I16": ["F16", "BF16"], "I64": ["F64"]}
                tensors[name] = (rng.choice(same.get(dtype, [dtype])), shape, part)
            case 3:
                tensors[name] = (dtype, list(reversed(shape)) if len(shape) > 1 else [1, *shape], part)
            case 4:
                tensors[name] = (dtype, [0, *shape[1:]], b"")
            case 5:
                tensors[name] = ("F32", [], struct.pack("<f", rng.choice([0.0, 1.0, float("nan")])))
            case 6 if len(shape) and shape[0] > 1:  # half of it
                half = len(part) // shape[0] * (shape[0] // 2)
                tensors[name] = (dtype, [shape[0] // 2, *shape[1:]], part[:half])
            case _:
                tensors[name] = (dtype, shape, _other_numbers(rng, dtype, part))
    header, offset = {}, 0
    for name, (dtype, shape, part) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(part)]}
        offset += len(part)
    if metadata is not None:
        header["__metadata__"] = metadata
    if rng.random() < 0.05:
        header["__metadata__"] = odd_value(rng)
    return _safetensors(header, b"".join(part for _, _, part in tensors.values()))


def _other_numbers(rng: random.Random, dtype: str, part: bytes) -> bytes:
    patterns = {
        "F32": [struct.pack("<f", x) for x in (float("nan"), float("inf"), 3e38, -3e38, 1e-45, 0.0, -1.0)],
        "U8": [b"\xff", b"\x00", b"\x80"],
        "I16": [struct.pack("<h", x) for x in (-1, 0, 32767, -32768)],
    }
    pattern = rng.choice(patterns.get(dtype, [b"\xff", b"\x00"]))
    if rng.random() < 0.5:
        return (pattern * (len(part) // len(pattern) + 1))[: len(part)]
    width = len(pattern)
    place = rng.randrange(max(len(part) // width, 1)) * width
    return (part[:place] + pattern + part[place + width :])[: len(part)]
