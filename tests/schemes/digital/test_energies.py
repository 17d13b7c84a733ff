"""Codewords with energy by what they stand for, on the digital link."""

from dataclasses import replace

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.decoders.amp.gamp import Gamp
from aircomp.encode.codebook import count, make_codebook
from aircomp.errors import ArtefactError, ConfigError, ShapeError
from aircomp.link import Link, communicate
from aircomp.schemes.digital import link as digital
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings
from helpers.exchanges import soft_error, two_rounds, updates

MATCHED = SchemeSettings(name="gamp", energy="matched")


@pytest.mark.parametrize("snr_db", [-5.0, 0.0, 5.0])
def test_matched_energies_decode_the_update_better_at_the_same_energy(snr_db):
    given = updates()
    matched, equal = two_rounds(MATCHED, given, snr_db), two_rounds(SchemeSettings(name="gamp"), given, snr_db)
    assert float(matched.air.energy.mean()) == pytest.approx(matched.air.nominal_energy, rel=1e-5)
    assert soft_error(matched) < 0.8 * soft_error(equal)


@pytest.mark.parametrize("snr_db", [-20.0, 20.0, 40.0, float("inf")])
def test_decoding_is_stable_at_every_snr(snr_db):
    error = soft_error(two_rounds(MATCHED, updates(), snr_db))
    assert error < (1.05 if snr_db < 0 else 1e-4)


def test_errors_of_decoding_many_devices_are_not_taken_for_noise(monkeypatch):
    """Without a look at the pilots' noise the decoder's is 3.7 times too high here, and the error half as large again."""
    given = updates(devices=64, params=4_000, spread=1.0, own=2.0)
    done = two_rounds(MATCHED, given, 10.0)
    monkeypatch.setattr("aircomp.decoders.estimate.heard_pilots.DEVIATIONS", float("inf"))
    alone = two_rounds(MATCHED, given, 10.0)
    assert done.memory == alone.memory
    assert float(alone.memory["noise_var"]) > 0.2
    assert soft_error(done) < 0.8 * soft_error(alone)


def test_the_first_round_has_equal_energies():
    link = Link(make_scheme(MATCHED), Awgn(0.0, "transmit"))
    given = updates()
    done = communicate(link, given[0], given[1:], {}, 0)
    energies = done.sent.signal.slot_energy()
    assert torch.allclose(energies, torch.ones_like(energies), atol=1e-5)
    assert "noise_var" in done.memory


@pytest.mark.parametrize("peak", [1.0, 4.0])
def test_no_codeword_is_above_the_peak(peak):
    done = two_rounds(MATCHED.changed(peak=peak), updates(), -5.0)
    energies = done.sent.signal.slot_energy()
    assert float(energies.max()) <= peak * (1 + 1e-5)
    assert float(energies.mean()) == pytest.approx(1, rel=1e-5)


def test_devices_unlike_the_base_station_spend_what_was_meant():
    """Their updates are ten times as long and elsewhere: the popularity is wrong by orders."""
    given = updates()
    given[1:] = 10 * given[1:].flip(1)
    done = two_rounds(MATCHED, given, 0.0)
    assert float(done.air.energy.mean()) == pytest.approx(done.air.nominal_energy, rel=1e-5)


@pytest.mark.parametrize("own", ["zero", "equal fragments", "one fragment"])
@pytest.mark.parametrize("rate", ["fixed", "auto"])
def test_an_update_that_makes_zero_or_equal_codewords_is_sent_like_any_other(own, rate):
    given = updates(params=2_000)
    given[0] = 1.0 if own == "equal fragments" else 0.0
    given[0, :20] += 3.0 * (own == "one fragment")
    done = two_rounds(MATCHED.changed(rate=rate), given, 5.0)
    assert done.update.isfinite().all()
    assert float(done.air.energy.mean()) == pytest.approx(done.air.nominal_energy, rel=1e-5)
    assert bool(done.update.any()) == (own != "zero")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("row", [0, 1])
def test_an_update_that_is_not_finite_is_refused(row, wrong):
    given = updates(params=2_000)
    given[row, 7] = wrong
    with pytest.raises(ShapeError, match="not finite"):
        two_rounds(MATCHED, given, 5.0)


def test_a_popularity_that_is_wrong_by_a_factor_of_ten_costs_little(monkeypatch):
    """Each codeword's is ten times too large or too small; the energy spent stays what was meant."""
    given = updates()
    right, built = two_rounds(MATCHED, given, 0.0), digital.build

    def misled(*given, **options):
        quantizer = built(*given, **options)
        wrong = quantizer.popularity * torch.where(torch.arange(len(quantizer.popularity)) % 2 == 0, 10.0, 0.1)
        return replace(quantizer, popularity=wrong / wrong.sum())

    monkeypatch.setattr(digital, "build", misled)
    done = two_rounds(MATCHED, given, 0.0)
    assert float(done.air.energy.mean()) == pytest.approx(done.air.nominal_energy, rel=1e-5)
    assert done.output.num_active_hat == pytest.approx(right.output.num_active_hat, rel=0.05)
    assert soft_error(done) < soft_error(right) + 0.1


def test_a_peak_below_the_mean_cannot_be_met_and_is_refused():
    with pytest.raises(ConfigError, match=r"peak = 0\.5"):
        MATCHED.changed(peak=0.5)


def test_without_noise_every_count_is_right_whatever_the_energies():
    rng = torch.Generator().manual_seed(0)
    codebook = make_codebook("two-bases", 64, 64, rng=rng)
    rows = codebook * torch.logspace(-1.5, 0.5, 64)[:, None]
    truth = count(torch.randint(0, 64, (10, 200), generator=rng), 64)
    decoded = Gamp(codebook).with_codebook(rows).decode(truth.float() @ rows, torch.ones(64))
    assert torch.equal(decoded.counts, truth)


@pytest.mark.parametrize("name", ["amp-da", "nnls", "gamp-net"])
def test_decoders_that_need_equal_energies_are_refused_before_the_run(name):
    with pytest.raises(ConfigError, match="energy"):
        SchemeSettings(name=name, energy="matched")


def test_a_decoder_keeps_asking_for_unit_norm_unless_it_is_told():
    with pytest.raises(ShapeError, match="unit norm"):
        Gamp(2 * torch.eye(8))
    with pytest.raises(ShapeError, match="row of zeros"):
        Gamp(torch.eye(8)).with_codebook(torch.diag(torch.tensor([0.0] + [1.0] * 7)))


def test_a_remembered_noise_from_a_damaged_file_is_refused():
    link = Link(make_scheme(MATCHED), Awgn(0.0, "transmit"))
    given = updates()
    with pytest.raises(ArtefactError, match="remembers noise_var"):
        communicate(link, given[0], given[1:], {"noise_var": torch.ones(3)}, 1)
