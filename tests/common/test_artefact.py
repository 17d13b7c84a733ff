import multiprocessing
import os

import pytest

from aircomp.common import artefact
from aircomp.errors import ArtefactError


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "x.json"
    artefact.write_json(path, {"old": 1})

    def fail(temporary):
        temporary.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ArtefactError, match="No space left"):
        artefact.write_atomically(path, fail)
    assert artefact.read_json(path) == {"old": 1}
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_full_disk_is_one_sentence():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with pytest.raises(ArtefactError, match="No space left"):
        artefact.write_atomically(__import__("pathlib").Path("/dev/shm/aircomp-test-full"), lambda t: _fill(t))


def _fill(temporary):
    with open("/dev/full", "w") as file:
        file.write("x" * 100_000)


def _hold(directory, ready, release):
    with artefact.lock(directory):
        ready.set()
        release.wait(10)


@pytest.mark.process
def test_a_directory_in_use_is_refused_and_free_again_when_its_holder_dies(tmp_path):
    context = multiprocessing.get_context("fork")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, release))
    holder.start()
    assert ready.wait(10)
    with pytest.raises(ArtefactError, match="in use"), artefact.lock(tmp_path):
        pass
    holder.kill()
    holder.join()
    with artefact.lock(tmp_path):
        pass


def test_toml_survives_a_round_trip(tmp_path):
    values = {"a": 1, "b": 'x"y', "c": True, "d": 1e-06, "e": [1, 2], "none": None, "group": {"x": 2.5, "no": None}}
    artefact.write_toml(tmp_path / "x.toml", values)
    assert artefact.read_toml(tmp_path / "x.toml") == {
        "a": 1, "b": 'x"y', "c": True, "d": 1e-06, "e": [1, 2], "group": {"x": 2.5}
    }  # fmt: skip


def test_a_text_that_no_file_can_have_is_not_a_lack_of_space(tmp_path):
    with pytest.raises(ArtefactError, match="surrogates not allowed; choose names that a file can have"):
        artefact.write_text(tmp_path / "a.txt", "a\udc80b")


def test_a_path_that_cannot_be_written_is_not_a_lack_of_space(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ArtefactError, match="check its permissions or choose another --out"):
        artefact.write_text(tmp_path / "file" / "a.txt", "a")
