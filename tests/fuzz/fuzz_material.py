"""What real commands leave, made once for a session: the files that cases read, whole or damaged.

run/        simulate: two rounds, with checkpoint
start/      central: one epoch
fragments/  collect: four rounds, raw
layer/      pretrain: one epoch
evaluate/   evaluate
reproduce/  reproduce quantisation at a tiny scale
arena/      arena: two schemes at two points
sweep/      aircomp.sweep over two schemes
data/       a handful of images as Fashion-MNIST and CIFAR-10
trace.txt   which devices take part
preset.toml, recipe.toml, challenge.toml   presets of simulate and pretrain, a challenge
"""

import contextlib
import gzip
import io
import struct
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

from fuzz_values import emit

TINY_RUN = {
    "--rounds": "1",
    "--devices.total": "4",
    "--participation.low": "1",
    "--participation.high": "2",
    "--model.width": "2",
    "--local.epochs": "1",
    "--engine": "serial",
}
TINY_TRAINING = {
    "--epochs": "1",
    "--samples-per-epoch": "32",
    "--data.validation-samples": "8",
    "--data.test-samples": "8",
    "--data.batch-slots": "16",
    "--net.num-layers": "2",
    "--net.filters": "4",
}
REPRODUCE = ["reproduce", "quantisation", "--seeds", "1", "--workers", "1"]
ARENA = ["arena", "--seeds", "1", "--workers", "1"]
CHALLENGE: dict[str, Any] = {
    "title": "White noise",
    "question": "Which scheme has the smaller error?",
    "axis": "snr_db",
    "values": [0.0, 10.0],
    "schemes": ["analog", "baa"],
    "vary": {"channel.snr_db": [0.0, 10.0]},
    "settings": {flag.removeprefix("--"): int(value) for flag, value in TINY_RUN.items() if "." in flag},
}


def words(flags: dict[str, str]) -> list[str]:
    """Return flags as arguments."""
    return [word for pair in flags.items() for word in pair]


def use_tiny_scale() -> None:
    """Make `--scale digits` take seconds instead of minutes; jobs carry their settings, so workers follow."""
    from aircomp.studies.scales import SCALES

    tiny = {
        "devices.total": 4,
        "participation.low": 1,
        "participation.high": 2,
        "model.width": 2,
        "local.epochs": 1,
    }
    SCALES["digits"] = replace(
        SCALES["digits"],
        federated=tiny | {"rounds": 1},
        collected=tiny | {"rounds": 3},
        measured=tiny | {"rounds": 1},
        other_model={"model.name": "digits-cnn", "model.width": 3},
        other_collected={"model.name": "digits-cnn", "model.width": 3},
        pretrained={
            "epochs": 1,
            "data.min_rounds": 3,
            "data.train_samples": 32,
            "data.validation_samples": 8,
            "data.test_samples": 8,
            "data.batch_slots": 16,
            "net.num_layers": 2,
            "net.filters": 4,
        },
        slots=8,
    )


def make_material(root: Path) -> Path:
    """Run the commands whose files are damaged later; every one must succeed."""
    use_tiny_scale()
    root.mkdir(parents=True, exist_ok=True)
    with contextlib.chdir(root):
        run = words(TINY_RUN)
        _aircomp("simulate", "digits", *run, "--rounds", "2", "--uplink", "gamp", "--out", "run")
        _aircomp("collect", "digits", *run, "--rounds", "4", "--raw", "--out", "fragments")
        _aircomp("central", "digits", *run, "--central.epochs", "1", "--out", "start")
        _aircomp("pretrain", "fragments", *words(TINY_TRAINING), "--out", "layer")
        evaluate = ["--fragments", "fragments", "--snr-db", "5", "--slots", "4", "--decoder", "gamp"]
        _aircomp("evaluate", *evaluate, "--out", "evaluate")
        _aircomp(*REPRODUCE, "--out", "reproduce")
        Path("challenge.toml").write_text(emit(CHALLENGE))
        _aircomp(*ARENA, "--challenge", "challenge.toml", "--out", "arena")
        swept(Path("sweep"))
        Path("trace.txt").write_text("0 1\n2\n\n3 0\n")
        _write_images(Path("data"))
        presets = resources.files("aircomp")
        Path("preset.toml").write_text((presets / "presets" / "digits.toml").read_text())
        Path("recipe.toml").write_text((presets / "train" / "presets" / "short.toml").read_text())
    return root


def swept(out: Path, over: Any = None) -> object:
    """Run a small sweep."""
    import aircomp

    tiny = {name: value for name, value in CHALLENGE["settings"].items() if name not in (over or ())}
    return aircomp.sweep("digits", over or {"uplink": ["ideal", "analog"]}, out=out, **tiny | {"rounds": 1})


def _aircomp(*args: str) -> None:
    from aircomp.cli import main

    with contextlib.redirect_stdout(io.StringIO()):
        main(_last_wins(args))


def _last_wins(args: tuple[str, ...]) -> list[str]:
    """Drop a flag that is given again later."""
    flags = [i for i, word in enumerate(args) if word.startswith("--")]
    repeated = {i for i in flags if args[i] in args[i + 1 :]}
    return [word for i, word in enumerate(args) if i not in repeated and i - 1 not in repeated]


def _write_images(folder: Path, number: int = 20) -> None:
    mnist, cifar = folder / "fashion-mnist", folder / "cifar-10-batches-bin"
    mnist.mkdir(parents=True)
    cifar.mkdir(parents=True)
    pixels, labels = bytes(i % 251 for i in range(number * 784)), bytes(i % 10 for i in range(number))
    for part in ("train", "t10k"):
        images = bytes([0, 0, 8, 3]) + struct.pack(">3I", number, 28, 28) + pixels
        (mnist / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images, mtime=0))
        named = bytes([0, 0, 8, 1]) + struct.pack(">I", number) + labels
        (mnist / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(named, mtime=0))
    record = b"".join(bytes([label]) + bytes(i % 253 for i in range(3072)) for label in labels)
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        (cifar / f"{name}.bin").write_bytes(record)
