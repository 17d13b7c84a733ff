"""MD-AirComp's receiver: equal to its plain version, as accurate as measured before, more antennas help."""

import pytest
import torch

from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.common.radio import GainModel
from aircomp.decoders.amp.slab import start_activity
from aircomp.decoders.fading import md_aircomp as module
from aircomp.decoders.fading.md_aircomp import MdAirComp
from aircomp.decoders.fading.receiver import Reception
from aircomp.decoders.rounding import round_to_sum
from aircomp.decoders.settings import MdAirCompSettings
from aircomp.errors import ConfigError
from helpers.draws import accuracy, seeded
from helpers.radio import DEVICES, POPULARITY, hear, qpsk
from plain.md_aircomp import md_aircomp as plain


def inverted_round(antennas, snr_db, slots=200, seed=7):
    """Devices undo their gain to the first antenna, and are silent where it is below a tenth of its mean power."""
    rng = seeded(seed)
    settings = ChannelSettings(kind="fading", block_slots=1, antennas=antennas)
    codebook = qpsk(rng)
    csi = Fading(settings, PowerSettings(control="inversion")).sound(DEVICES, 64 * slots, rng=rng)
    gains = (csi.with_power.values / csi.level[:, None]).permute(2, 0, 1)
    received, counts, noise_var, _ = hear(gains, codebook, snr_db, rng=rng, level=float(csi.level[0]))
    return codebook, received, counts, noise_var


def share_right(codebook, received, counts, **told):
    """Return the accuracy of counts rounded to the senders of every slot, which here is a block of its own."""
    mean = MdAirComp(codebook).receive(Reception(received, POPULARITY, gain_model=GainModel(), **told))[0].mean
    rounded = [round_to_sum(row[None], int(truth.sum())) for row, truth in zip(mean, counts, strict=True)]
    return accuracy(torch.cat(rounded), counts)


@pytest.mark.parametrize(("antennas", "iterations"), [(1, 8), (3, 1), (3, 30)])
def test_it_is_the_plain_version(antennas, iterations, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    codebook, received, *_ = inverted_round(antennas, 8.0, slots=3)
    codebook, received = codebook.to(torch.complex128)[:24], received.to(torch.complex128)
    receiver = MdAirComp(codebook, MdAirCompSettings(max_iterations=iterations))
    found, _ = receiver.iterate(received.transpose(0, 1), 6, None)
    options = {"largest": 6, "start_activity": start_activity(24, 32), "max_iterations": iterations}
    # the same formulas in double precision; iterations multiply its rounding
    torch.testing.assert_close(found, plain(received, codebook, **options), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("snr_db", "expected"), [(0, 0.38), (5, 0.81), (10, 1.0)])
def test_it_counts_as_well_as_measured_before(snr_db, expected):
    codebook, received, counts, noise_var = inverted_round(8, float(snr_db), slots=300)
    found = share_right(
        codebook, received, counts, num_active=10.0, noise_var=noise_var
    )  # told, as in the measurements
    assert found > expected - 0.05  # .03, and a standard error of .012 with 300 slots


def test_other_antennas_help_though_only_the_first_counts():
    codebook, received, counts, _ = inverted_round(8, 5.0)
    assert share_right(codebook, received, counts) > share_right(codebook, received[:1], counts) + 0.3


def test_it_finds_noise_and_devices():
    codebook, received, counts, noise_var = inverted_round(8, 10.0)
    found = MdAirComp(codebook).receive(Reception(received, POPULARITY, gain_model=GainModel()))[0]
    assert found.num_active_hat == pytest.approx(float(counts.sum(1).double().mean()), abs=0.1)
    assert float(found.noise_var[0]) == pytest.approx(noise_var, rel=0.05)


def test_silence_is_counted_block_by_block():
    rng = seeded(9)
    codebook, gains = qpsk(rng), torch.ones(2, DEVICES, 128, dtype=torch.complex64)
    gains[:, :4, 64:] = 0
    received, *_ = hear(gains, codebook, 12.0, rng=rng)
    blocks = (slice(0, 64), slice(64, 128))
    found = MdAirComp(codebook).receive(Reception(received, POPULARITY, blocks, GainModel(silence=True)))
    assert [decoded.num_active for decoded in found] == [10, 6]


def test_the_size_of_chunks_changes_nothing(monkeypatch):
    codebook, received, *_ = inverted_round(4, 5.0, slots=70)
    seen = Reception(received, POPULARITY, gain_model=GainModel())
    whole = MdAirComp(codebook).receive(seen)[0]
    monkeypatch.setattr(module, "CHUNK", 16)
    assert torch.equal(whole.counts, MdAirComp(codebook).receive(seen)[0].counts)


def test_random_phases_are_refused_in_one_sentence():
    codebook = qpsk(seeded())
    with pytest.raises(ConfigError, match="'md-aircomp' needs gains of a common phase"):
        MdAirComp(codebook).receive(Reception(torch.ones(1, 3, 32, dtype=torch.complex64), POPULARITY))
