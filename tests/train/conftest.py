from functools import cache

import pytest
import torch

from aircomp.quantize.codebook import build, nearest
from aircomp.quantize.settings import QuantizeSettings
from aircomp.train.fragments import FragmentRound, save_round
from helpers.trainings import KINDS

NUM_CODEWORDS, FRAGMENT = 16, 4


def _synthetic_round(seed: int, *, raw: bool = True, num_slots: int = 60, num_codewords: int = NUM_CODEWORDS):
    """Quantise random fragments of a few devices as a round of the digital link does."""
    rng = torch.Generator().manual_seed(seed)
    num_active = int(torch.randint(3, 7, (), generator=rng))
    base = torch.randn(num_slots, FRAGMENT, generator=rng)
    devices = base + torch.randn(num_active, num_slots, FRAGMENT, generator=rng)
    quantizer = build(base, QuantizeSettings(fragment_length=FRAGMENT, num_codewords=num_codewords), rng=rng)
    return FragmentRound(
        nearest(devices, quantizer.codebook),
        quantizer.popularity,
        quantizer.codebook,
        quantizer.base_indices,
        None,
        devices if raw else None,
        base if raw else None,
    )


@pytest.fixture
def synthetic_round():
    """Return the maker of small rounds."""
    return _synthetic_round


@pytest.fixture(scope="session")
def collection(tmp_path_factory):
    """Return a fragments directory of six small rounds, for reading only."""
    directory = tmp_path_factory.mktemp("collection") / "fragments"
    for index in range(6):
        save_round(directory, index, _synthetic_round(index))
    return directory


@pytest.fixture(scope="session")
def finished(collection, tmp_path_factory):
    """Return the directory of a finished training by the kind of its networks; each is trained once."""

    @cache
    def directory(kind):
        pretrain, settings, _ = KINDS[kind]
        out = tmp_path_factory.mktemp(kind) / kind
        pretrain([collection], settings, out)
        return out

    return directory
