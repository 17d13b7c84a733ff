"""Download of datasets from their own public hosts: resumable, checked, never over an existing file."""

import fcntl
import hashlib
import http.client
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aircomp import errors
from aircomp.data import files
from aircomp.errors import ArtefactError

log = logging.getLogger(__name__)

_CHUNK = 1 << 18
_TIMEOUT = 30  # seconds without a byte before the host counts as gone


@dataclass(frozen=True)
class Source:
    """One official file: where it is and how to know it."""

    url: str
    size: int
    """In bytes."""
    sha256: str

    @property
    def filename(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[-1]


_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_FASHION_MNIST = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/"

SOURCES: Mapping[str, tuple[Source, ...]] = {
    "digits": (),  # comes with scikit-learn
    "mnist": (
        Source(
            _MNIST + "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        Source(
            _MNIST + "train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        Source(
            _MNIST + "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        Source(
            _MNIST + "t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    "fashion-mnist": (
        Source(
            _FASHION_MNIST + "train-images-idx3-ubyte.gz",
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        Source(
            _FASHION_MNIST + "train-labels-idx1-ubyte.gz",
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        Source(
            _FASHION_MNIST + "t10k-images-idx3-ubyte.gz",
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        Source(
            _FASHION_MNIST + "t10k-labels-idx1-ubyte.gz",
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    "cifar10": (
        Source(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
}


def fetch(
    name: str,
    directory: Path | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
    sources: Mapping[str, tuple[Source, ...]] = SOURCES,
) -> Path:
    """Download a dataset to `<data directory>/<name>` and return where `load` finds it.

    What is there already is left alone; an interrupted download goes on where it stopped.

    Args:
        name: One of `dataset_names()`.
        directory: Where datasets lie; see `data_directory` for the default.
        progress: Called with the bytes done and the bytes of all files.
        sources: The official files of every dataset.

    Raises:
        ConfigError: If nobody knows the name.
        ArtefactError: If the host cannot be reached, the file is not the official one, or it cannot be written.
    """
    if name not in sources:
        raise errors.unknown_name("dataset", name, sources)
    folder = files.data_directory(directory) / name
    found = files.locate_files(name, directory)
    if found is not None and not any((folder / source.filename).exists() for source in sources[name]):
        return found  # not by us: its owner put it there
    done, total = 0, sum(source.size for source in sources[name])
    for source in sources[name]:
        _fetch_file(source, folder, lambda size, before=done: progress(before + size, total) if progress else None)
        done += source.size
    return files.locate(name, directory) or folder


def _fetch_file(source: Source, folder: Path, progress: Callable[[int], None]) -> None:
    target = folder / source.filename
    part = target.with_name(target.name + ".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            with open(part, "ab") as file:
                _lock(file, part)
                _download(source, file, progress)
                file.flush()
                _check(source, part)
                os.fsync(file.fileno())
                os.rename(part, target)
            log.info("fetched %s", target)
        elif not _is_official(source, target):
            raise ArtefactError(f"{target} is not the official file; move it away and fetch again")
    except ArtefactError:
        raise
    except OSError as error:
        raise ArtefactError(
            f"cannot write {part}: {error.strerror or error}; free some space or choose --data-dir"
        ) from error
    progress(source.size)


def _lock(file: BinaryIO, part: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ArtefactError(f"{part} is being downloaded by another process; wait for it") from None


def _download(source: Source, file: BinaryIO, progress: Callable[[int], None]) -> None:
    have = file.tell()
    if have > source.size:
        have = file.truncate(0)  # cannot be a beginning of the official file
    if have == source.size:
        return
    for chunk, position in _chunks(source, have):
        if position < have:
            file.truncate(position)  # the server began anew
        file.write(chunk)  # opened for appending: always at the end
        have = position + len(chunk)
        progress(min(have, source.size))
        if have > source.size:
            return  # the checksum will say that it is something else
    if have < source.size:
        file.flush()
        raise _interrupted(source, "the connection was cut", have)


def _chunks(source: Source, start: int) -> Iterator[tuple[bytes, int]]:
    """Yield what the server sends with its position, from `start` or, where it cannot resume, from zero."""
    request = urllib.request.Request(source.url, headers={"User-Agent": "aircomp"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    position = start
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            if response.status != http.HTTPStatus.PARTIAL_CONTENT:
                position = 0
            while chunk := response.read(_CHUNK):
                yield chunk, position
                position += len(chunk)
    except urllib.error.HTTPError as error:
        error.close()
        raise _interrupted(source, f"the server answered {error.code} {error.reason}", start) from None
    except urllib.error.URLError as error:
        raise _interrupted(source, f"not reachable ({error.reason})", start) from None
    except (http.client.HTTPException, OSError) as error:
        raise _interrupted(source, f"the connection was cut ({error})", position) from None


def _interrupted(source: Source, reason: str, have: int) -> ArtefactError:
    return ArtefactError(
        f"cannot fetch {source.url}: {reason} with {have} of {source.size} bytes here; "
        "try again later, it will go on from there"
    )


def _check(source: Source, part: Path) -> None:
    if not _is_official(source, part):
        size = part.stat().st_size
        part.unlink()
        raise ArtefactError(
            f"what {source.url} sent is not the official file "
            f"({size} bytes, expected {source.size} and another checksum); it was removed, try again later"
        )


def _is_official(source: Source, path: Path) -> bool:
    if path.stat().st_size != source.size:
        return False
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == source.sha256
