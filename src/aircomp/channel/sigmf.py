"""IQ samples as SigMF recordings, for radios: two files, samples and what is said about them (https://sigmf.org, 1.2).

NAME.sigmf-data    complex samples, I and Q in turns: one sample is two real channel uses of a slot
NAME.sigmf-meta    JSON: sample format, sample rate, checksum; under `aircomp:` how the samples form slots
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import aircomp
from aircomp.common.artefact import check_file, read_json, write_atomically, write_json
from aircomp.common.checks import check_number, check_path
from aircomp.common.packing import pack, unpack
from aircomp.common.tensors import MOST_TENSOR_BYTES, check_tensor
from aircomp.errors import ArtefactError, ConfigError

FORMATS = {"cf32_le": ("<f4", 1.0), "ci16_le": ("<i2", 32768.0)}
"""Sample formats that are read: numpy's type of a component, and what stands for one. Ours is the first one."""
LOWEST_RATE, HIGHEST_RATE = 1e-3, 1e12
MOST_USES = 2**20
"""Of a slot, in what a file may claim."""


@dataclass(frozen=True)
class Recording:
    """What a SigMF recording holds."""

    samples: Float[Tensor, "slots uses"]
    """Real channel uses, as decoders take them."""
    sample_rate: float
    """Complex samples in a second."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What was said when it was written: the entries under `aircomp:` of the metadata."""


def write_sigmf(
    path: str | Path,
    samples: Float[Tensor, "slots uses"],
    *,
    sample_rate: float = 1e6,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write channel uses as a SigMF recording, two of them in a complex sample.

    Args:
        path: Name of the recording, without `.sigmf-data` and `.sigmf-meta`.
        samples: Real channel uses, a slot in each row.
        sample_rate: Complex samples in a second.
        about: What else the metadata shall say, by name; `read_sigmf` returns it.

    Raises:
        ConfigError: If the sample rate is no positive number.
        ShapeError: If the samples are no finite numbers.
        ArtefactError: If the files cannot be written.
    """
    check_path("path", path)
    check_tensor("samples", samples, "slots uses", "floating")
    check_number("sample_rate", sample_rate, low=LOWEST_RATE, high=HIGHEST_RATE)
    slots, uses = samples.shape
    values = torch.view_as_real(pack(samples.detach().cpu().float())).numpy().astype("<f4").tobytes()
    said = {f"aircomp:{name}": value for name, value in {**(about or {}), "slots": slots, "uses": uses}.items()}
    meta = {
        "global": {
            "core:datatype": "cf32_le",
            "core:version": "1.2.0",
            "core:sample_rate": sample_rate,
            "core:num_channels": 1,
            "core:sha512": hashlib.sha512(values).hexdigest(),
            "core:recorder": f"aircomp {aircomp.__version__}",
            "core:extensions": [{"name": "aircomp", "version": aircomp.__version__, "optional": True}],
            **said,
        },
        "captures": [{"core:sample_start": 0}],
        "annotations": [],
    }
    write_atomically(_file(path, "data"), lambda temporary: _write(temporary, values))
    write_json(_file(path, "meta"), meta)


def read_sigmf(path: str | Path, *, uses: int | None = None) -> Recording:
    """Read a SigMF recording as the channel uses of slots.

    Args:
        path: Name of the recording, with or without `.sigmf-data` or `.sigmf-meta`.
        uses: Real channel uses of a slot; needed for a recording that a radio made, which does not say.

    Raises:
        ConfigError: If `uses` is missing or no positive number.
        ArtefactError: If a file is missing or damaged, or holds samples of another format.
    """
    check_path("path", path)
    if uses is not None:
        check_number("uses", uses, low=1, high=MOST_USES, integer=True)
    meta_file, data_file = _file(path, "meta"), _file(path, "data")
    meta = read_json(meta_file)
    said = meta.get("global") if isinstance(meta, dict) else None
    if not isinstance(said, dict):
        raise ArtefactError(f"{meta_file} has no group 'global'; expected the metadata of a SigMF recording")
    kind, channels, rate = (said.get(f"core:{name}") for name in ("datatype", "num_channels", "sample_rate"))
    if kind not in FORMATS or channels not in (None, 1):
        raise ArtefactError(
            f"{meta_file} has samples of type {kind!r} on {channels or 1} channels; expected one channel of "
            f"{' or '.join(FORMATS)}; convert it"
        )
    about = {name.removeprefix("aircomp:"): value for name, value in said.items() if name.startswith("aircomp:")}
    uses = about.get("uses") if uses is None else uses
    if uses is None:
        raise ConfigError(f"{meta_file} does not say how many channel uses a slot has; give uses=, say uses=64")
    if not isinstance(uses, int) or not 1 <= uses <= MOST_USES:
        raise ArtefactError(f"{meta_file} claims {uses!r} channel uses in a slot; expected 1 to {MOST_USES}")
    check_file(data_file, MOST_TENSOR_BYTES)
    values = data_file.read_bytes()
    if said.get("core:sha512") not in (None, hashlib.sha512(values).hexdigest()):
        raise ArtefactError(
            f"{data_file} is not the file that {meta_file} describes: its checksum differs; copy both anew"
        )
    number, one = FORMATS[kind]
    of_slot = 2 * math.ceil(uses / 2)  # an odd use has a zero beside it
    if len(values) % (of_slot * np.dtype(number).itemsize):
        raise ArtefactError(f"{data_file} ends within a slot of {uses} channel uses; cut it to whole slots")
    reals = torch.from_numpy(np.frombuffer(values, number).astype("f4") / np.float32(one))
    samples = unpack(torch.view_as_complex(reals.view(-1, of_slot // 2, 2)), uses)
    if not bool(samples.isfinite().all()):
        raise ArtefactError(f"{data_file} has samples that are no finite numbers; record it anew")
    return Recording(samples, _rate(meta_file, rate), about)


def _write(path: Path, values: bytes) -> None:
    path.write_bytes(values)


def _file(path: str | Path, part: str) -> Path:
    name = str(path).removesuffix(".sigmf-data").removesuffix(".sigmf-meta")
    return Path(f"{name}.sigmf-{part}")


def _rate(meta_file: Path, rate: Any) -> float:  # Any: whatever the file says
    try:
        check_number("sample_rate", rate, low=LOWEST_RATE, high=HIGHEST_RATE)
    except ConfigError:
        raise ArtefactError(f"{meta_file} has a sample rate of {rate!r}; expected samples a second") from None
    return float(rate)
