"""What the trainings of codes and receivers share: same seed, same bits; interrupted ones go on; all is on disk."""

import pytest

from aircomp.common.artefact import read_json
from aircomp.train import loop
from helpers.records import read_lines
from helpers.trainings import KINDS, files_of


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bits_and_another_one_others(kind, collection, finished, tmp_path):
    pretrain, settings, _ = KINDS[kind]
    pretrain([collection], settings, tmp_path / "again")
    assert files_of(tmp_path / "again") == files_of(finished(kind))
    pretrain([collection], settings.changed(seed=1, epochs=1), tmp_path / "other")
    assert files_of(tmp_path / "other")[0] != files_of(finished(kind))[0]


@pytest.mark.parametrize("kind", ["receiver", "joint"])
def test_a_training_that_ended_early_resumes_to_the_same_bits(kind, collection, finished, tmp_path):
    pretrain, settings, _ = KINDS[kind]
    pretrain([collection], settings.changed(seconds=1e-3), tmp_path / "parts")
    assert len(read_lines(tmp_path / "parts" / "metrics.jsonl")) == 1
    pretrain([collection], settings, tmp_path / "parts", resume=True)
    assert files_of(tmp_path / "parts")[0] == files_of(finished(kind))[0]


class Killed(Exception):
    pass


@pytest.mark.parametrize("kind", ["code"])
def test_a_killed_training_resumes_to_the_same_bits(kind, collection, finished, tmp_path, monkeypatch):
    pretrain, settings, _ = KINDS[kind]
    done, descend = [], loop.descend

    def dying(*args):
        done.append(1)
        if len(done) == 15:  # within the second epoch, of twelve steps each
            raise Killed
        return descend(*args)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "descend", dying)
        with pytest.raises(Killed):
            pretrain([collection], settings, tmp_path / "parts")
    pretrain([collection], settings, tmp_path / "parts", resume=True)
    assert files_of(tmp_path / "parts") == files_of(finished(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_directory_holds_what_was_trained_with_records_and_result(kind, finished):
    layer = KINDS[kind][2].load(finished(kind))
    parts = {part: len(names) for part, names in layer.training["rounds"].items()}
    assert parts == {"train": 4, "validation": 1, "test": 1}
    assert read_json(finished(kind) / "result.json")["rows"] == layer.training["test"]
