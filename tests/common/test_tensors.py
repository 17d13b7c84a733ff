import os

import pytest
import torch

from aircomp.common.tensors import read_tensors, tensor_hash, write_tensors
from aircomp.errors import ArtefactError


def test_tensors_and_metadata_survive_a_round_trip(tmp_path):
    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5, dtype=torch.int16)}
    write_tensors(tmp_path / "x.safetensors", tensors, {"k": "v"})
    read, metadata = read_tensors(tmp_path / "x.safetensors")
    assert metadata == {"k": "v"}
    assert all(torch.equal(read[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("keep", [0, 7, 60])
def test_truncated_files_are_named_in_one_sentence(tmp_path, keep):
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.randn(30)})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ArtefactError, match=r"x\.safetensors is damaged"):
        read_tensors(path)


def test_tensor_hash_sees_values_shapes_and_types():
    a = torch.arange(6.0)
    hashes = {tensor_hash(t) for t in (a, a.view(2, 3), a.double(), a + 1, a.clone())}
    assert len(hashes) == 4


def test_files_of_tensors_have_the_mode_that_the_umask_gives(tmp_path):
    before = os.umask(0o027)
    try:
        write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(2)})
    finally:
        os.umask(before)
    assert (tmp_path / "a.safetensors").stat().st_mode & 0o777 == 0o640
