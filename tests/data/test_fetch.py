import contextlib
import fcntl
import gzip
import hashlib
import http.server
import re
import socket
import struct
import threading

import pytest

from aircomp.data import fetch, files
from aircomp.data import images as data
from aircomp.errors import ArtefactError, ConfigError

BODY = bytes(range(256)) * 4000  # a megabyte: several chunks
NAME = "cifar-10-binary.tar.gz"


class Host(http.server.ThreadingHTTPServer):
    """A real server on this machine that can misbehave."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.resumes = True
        self.cut_after: int | None = None
        self.requests: list[str | None] = []
        """The Range header of every request so far."""

    def source(self, name: str = NAME, content: bytes = BODY) -> fetch.Source:
        self.files[f"/{name}"] = content
        url = f"http://127.0.0.1:{self.server_port}/{name}"
        return fetch.Source(url, len(content), hashlib.sha256(content).hexdigest())


class Handler(http.server.BaseHTTPRequestHandler):
    server: Host

    def do_GET(self):
        wanted = self.headers["Range"]
        self.server.requests.append(wanted)
        if self.path not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[self.path]
        if wanted and self.server.resumes:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            content = content[start:]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the client may leave early
            self.wfile.write(content[: self.server.cut_after])

    def log_message(self, *_):
        pass


@pytest.fixture
def host(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(files, "DEBIAN_FASHION_MNIST", tmp_path / "nothing here")
    with Host() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_file_is_fetched_checked_and_reported(host, tmp_path):
    calls = []
    path = fetch.fetch(
        "cifar10", tmp_path, progress=lambda *now: calls.append(now), sources={"cifar10": (host.source(),)}
    )
    assert path == tmp_path / "cifar10" / NAME
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]
    assert calls == sorted(calls)
    assert calls[-1] == (len(BODY), len(BODY))
    assert len(calls) > 2


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_what_was_fetched_can_be_loaded(name, host, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_packaged", lambda name: tmp_path / "a package")  # which does not stand for the files
    images = gzip.compress(bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 28, 28) + bytes(range(49)) * 32)
    labels = gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", 2) + bytes([3, 9]))
    names = [source.filename for source in fetch.SOURCES[name]]
    sources = tuple(host.source(file, images if "images" in file else labels) for file in names)
    calls = []

    path = fetch.fetch(name, tmp_path, progress=lambda *c: calls.append(c), sources={name: sources})

    assert path == files.locate(name, tmp_path) == tmp_path / name
    assert data.load(name, tmp_path).test_labels.tolist() == [3, 9]
    total = 2 * len(images) + 2 * len(labels)
    assert calls == sorted(calls)
    assert calls[-1] == (total, total)


def test_a_complete_file_is_not_asked_for_again(host, tmp_path):
    sources = {"cifar10": (host.source(),)}
    first = fetch.fetch("cifar10", tmp_path, sources=sources)
    assert fetch.fetch("cifar10", tmp_path, sources=sources) == first
    assert len(host.requests) == 1


def test_a_cut_connection_leaves_a_part_that_the_next_call_completes(host, tmp_path):
    sources = {"cifar10": (host.source(),)}
    host.cut_after = 600_000
    with pytest.raises(ArtefactError, match=rf"cut.* 600000 of {len(BODY)} bytes here; try again later"):
        fetch.fetch("cifar10", tmp_path, sources=sources)
    part = tmp_path / "cifar10" / f"{NAME}.part"
    assert part.read_bytes() == BODY[:600_000]
    assert files.locate("cifar10", tmp_path) is None

    host.cut_after = None
    path = fetch.fetch("cifar10", tmp_path, sources=sources)
    assert host.requests == [None, "bytes=600000-"]
    assert path.read_bytes() == BODY
    assert not part.exists()


def test_a_server_that_cannot_resume_is_read_from_the_start(host, tmp_path):
    source = host.source()
    host.resumes = False
    part = tmp_path / "cifar10" / f"{NAME}.part"
    part.parent.mkdir()
    part.write_bytes(b"x" * 1000)
    path = fetch.fetch("cifar10", tmp_path, sources={"cifar10": (source,)})
    assert host.requests == ["bytes=1000-"]
    assert path.read_bytes() == BODY


def test_a_part_that_is_whole_needs_no_server(host, tmp_path):
    part = tmp_path / "cifar10" / f"{NAME}.part"
    part.parent.mkdir()
    part.write_bytes(BODY)
    assert fetch.fetch("cifar10", tmp_path, sources={"cifar10": (host.source(),)}).read_bytes() == BODY
    assert host.requests == []


def test_a_part_that_is_too_long_is_begun_anew(host, tmp_path):
    part = tmp_path / "cifar10" / f"{NAME}.part"
    part.parent.mkdir()
    part.write_bytes(BODY + b"x")
    assert fetch.fetch("cifar10", tmp_path, sources={"cifar10": (host.source(),)}).read_bytes() == BODY
    assert host.requests == [None]


@pytest.mark.parametrize("sent", [BODY[:-1] + b"x", BODY + b"x" * 500_000], ids=["changed", "longer"])
def test_a_file_that_is_not_the_official_one_is_removed(sent, host, tmp_path):
    source = host.source()
    host.files[f"/{NAME}"] = sent
    with pytest.raises(ArtefactError, match=r"sent is not the official file .*it was removed, try again later"):
        fetch.fetch("cifar10", tmp_path, sources={"cifar10": (source,)})
    assert list((tmp_path / "cifar10").iterdir()) == []


def test_an_unreachable_host_ends_in_a_sentence_and_keeps_the_part(host, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        source = fetch.Source(f"http://127.0.0.1:{unused.getsockname()[1]}/{NAME}", 5, "0" * 64)
        part = tmp_path / "cifar10" / f"{NAME}.part"
        part.parent.mkdir()
        part.write_bytes(b"abc")
        with pytest.raises(ArtefactError, match=r"not reachable \(.*refused.*\) with 3 of 5 bytes here; try again"):
            fetch.fetch("cifar10", tmp_path, sources={"cifar10": (source,)})
    assert part.read_bytes() == b"abc"


def test_a_refusal_of_the_server_is_passed_on(host, tmp_path):
    source = host.source()
    host.files.clear()
    with pytest.raises(ArtefactError, match="the server answered 404 Not Found"):
        fetch.fetch("cifar10", tmp_path, sources={"cifar10": (source,)})


def test_a_file_already_there_is_never_overwritten(host, tmp_path):
    path = tmp_path / "cifar10" / NAME
    path.parent.mkdir()
    path.write_bytes(b"somebody's")
    with pytest.raises(ArtefactError, match="is not the official file; move it away and fetch again"):
        fetch.fetch("cifar10", tmp_path, sources={"cifar10": (host.source(),)})
    assert path.read_bytes() == b"somebody's"
    assert host.requests == []


def test_a_dataset_that_its_owner_put_there_is_left_alone(host, tmp_path):
    (tmp_path / NAME).write_bytes(b"not in the folder that fetch fills")
    assert fetch.fetch("cifar10", tmp_path, sources={"cifar10": (host.source(),)}) == tmp_path / NAME
    assert host.requests == []


def test_a_download_in_progress_is_not_disturbed(host, tmp_path):
    part = tmp_path / "cifar10" / f"{NAME}.part"
    part.parent.mkdir()
    with open(part, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ArtefactError, match="is being downloaded by another process; wait for it"):
            fetch.fetch("cifar10", tmp_path, sources={"cifar10": (host.source(),)})


def test_a_directory_that_cannot_be_written_ends_in_a_sentence(host, tmp_path):
    (tmp_path / "cifar10").write_bytes(b"a file in the way")
    with pytest.raises(ArtefactError, match=r"cannot write .*; free some space or choose --data-dir"):
        fetch.fetch("cifar10", tmp_path, sources={"cifar10": (host.source(),)})


def test_digits_need_no_download(tmp_path):
    assert fetch.fetch("digits", tmp_path) == files.locate("digits")


def test_an_unknown_name_suggests_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="there is no dataset 'fashion': did you mean 'fashion-mnist'"):
        fetch.fetch("fashion", tmp_path)


def test_every_dataset_has_secure_addresses_and_checksums():
    assert list(fetch.SOURCES) == data.dataset_names()
    for source in (source for sources in fetch.SOURCES.values() for source in sources):
        assert source.url.startswith("https://")
        assert re.fullmatch("[0-9a-f]{64}", source.sha256)
