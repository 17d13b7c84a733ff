import pytest
import torch

from aircomp.common.artefact import read_json
from aircomp.common.tensors import write_tensors
from aircomp.encode.codebook import count
from aircomp.errors import ArtefactError, ConfigError
from aircomp.quantize.codebook import nearest
from aircomp.train.collect import collect
from aircomp.train.fragments import load_round, round_files
from helpers.settings import QUICK


def test_a_collection_holds_what_devices_chose(tmp_path):
    run = collect("digits", tmp_path, raw=True, **QUICK)
    files = round_files(tmp_path)
    assert [f.name for f in files] == [f"round_{i:05d}.safetensors" for i in range(3)]
    for path, record in zip(files, run.metrics, strict=True):
        saved = load_round(path)
        assert saved.num_active == record["num_active"]
        assert torch.equal(nearest(saved.fragments, saved.quant_codebook), saved.indices)
        assert torch.equal(nearest(saved.bs_fragments, saved.quant_codebook), saved.bs_indices)
        own = count(saved.bs_indices[None], saved.num_codewords).sum(dim=0)
        torch.testing.assert_close(own / own.sum(), saved.popularity, rtol=1e-6, atol=1e-7)  # counts over a sum
        assert (saved.popularity.diff() <= 0).all()
    assert read_json(tmp_path / "fragments.json")["order"] == "popularity"
    assert read_json(tmp_path / "result.json")["command"] == "collect"


def test_an_interrupted_collection_resumes_to_the_same_files(tmp_path):
    collect("digits", tmp_path / "whole", **QUICK)
    collect("digits", tmp_path / "parts", **QUICK | {"rounds": 1})
    collect("digits", tmp_path / "parts", resume=True, **QUICK)
    for whole, parts in zip(round_files(tmp_path / "whole"), round_files(tmp_path / "parts"), strict=True):
        assert whole.read_bytes() == parts.read_bytes()


@pytest.mark.parametrize(
    ("raw", "sentence"), [(False, "hold no raw fragments; resume without --raw"), (True, "hold raw .* with --raw")]
)
def test_a_collection_is_raw_in_all_rounds_or_in_none(tmp_path, raw, sentence):
    collect("digits", tmp_path, raw=raw, **QUICK | {"rounds": 1})
    with pytest.raises(ConfigError, match=sentence):
        collect("digits", tmp_path, raw=not raw, resume=True, **QUICK)
    collect("digits", tmp_path, raw=raw, resume=True, **QUICK | {"rounds": 2})
    assert len({load_round(path).fragments is None for path in round_files(tmp_path)}) == 1


def tensors(**changes):
    good = {
        "indices": torch.zeros(3, 5, dtype=torch.uint8),
        "popularity": torch.full((8,), 1 / 8),
        "quant_codebook": torch.zeros(8, 4),
    }
    return {k: v for k, v in (good | changes).items() if v is not None}


def test_three_keys_are_enough(tmp_path):
    write_tensors(tmp_path / "round_00000.safetensors", tensors())
    saved = load_round(tmp_path / "round_00000.safetensors")
    assert (saved.num_active, saved.num_slots, saved.num_codewords) == (3, 5, 8)
    assert saved.bs_indices is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"popularity": None}, "lacks popularity"),
        ({"indices": torch.full((3, 5), 8, dtype=torch.uint8)}, "indices reaches from 8 to 8; expected 0 to 7"),
        ({"indices": torch.zeros(3, 5)}, "expected integers"),
        ({"indices": torch.zeros(0, 5, dtype=torch.uint8)}, r"expected integers \[devices, slots\]"),
        ({"popularity": torch.ones(7)}, r"popularity is float32 \[7\]; expected reals \[8\]"),
        ({"bs_indices": torch.zeros(4, dtype=torch.uint8)}, r"bs_indices is uint8 \[4\]; expected integers \[5\]"),
    ],
)
def test_foreign_files_are_named_with_what_is_wrong(tmp_path, changes, message):
    path = tmp_path / "round_00000.safetensors"
    write_tensors(path, tensors(**changes))
    with pytest.raises(ArtefactError, match=message):
        load_round(path)


def test_an_empty_directory_says_how_to_fill_it(tmp_path):
    with pytest.raises(ArtefactError, match="aircomp collect"):
        round_files(tmp_path)
