"""The scheme `joint-net` on the digital link: energy, peak, errors, and what it refuses."""

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.errors import ArtefactError, ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.base import MEAN_ENERGY, SchemeContext
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings
from helpers.exchanges import soft_error, two_rounds, updates

MATCHED = SchemeSettings(name="gamp", energy="matched")
JOINT = SchemeSettings(name="joint-net")


@pytest.mark.parametrize("snr_db", [-10.0, -5.0])
def test_it_decodes_the_update_better_than_matched_energies_at_the_same_energy(snr_db):
    given = updates(params=6_000, spread=0.7, own=3.0)
    joint, matched = two_rounds(JOINT, given, snr_db), two_rounds(MATCHED, given, snr_db)
    assert float(joint.air.energy.mean()) == pytest.approx(joint.air.nominal_energy, rel=1e-5)
    assert joint.broadcast.num_uses == matched.broadcast.num_uses
    assert soft_error(joint) < 0.93 * soft_error(matched)


@pytest.mark.parametrize("snr_db", [12.0])
def test_in_little_noise_it_is_gamp_with_matched_energies(snr_db):
    given = updates(params=4_000)
    joint, matched = two_rounds(JOINT, given, snr_db), two_rounds(MATCHED, given, snr_db)
    torch.testing.assert_close(joint.output.soft_counts, matched.output.soft_counts, atol=1e-3, rtol=0)


@pytest.mark.parametrize("snr_db", [-20.0, float("inf")])
def test_decoding_is_stable_at_every_snr(snr_db):
    error = soft_error(two_rounds(JOINT, updates(params=4_000), snr_db))
    assert error < (1.1 if snr_db < 0 else 1e-2)


@pytest.mark.parametrize("devices", [1, 40])
def test_decoding_is_stable_with_few_and_many_devices(devices):
    given = updates(devices=devices, params=6_000, spread=0.7, own=3.0)
    assert soft_error(two_rounds(JOINT, given, 0.0)) < 1.05 * soft_error(two_rounds(MATCHED, given, 0.0))


@pytest.mark.parametrize("peak", [4.0])
def test_no_codeword_is_above_the_peak(peak):
    energies = two_rounds(JOINT.changed(peak=peak), updates(params=4_000), -5.0).sent.signal.slot_energy()
    assert float(energies.max()) <= peak * (1 + 1e-5)
    assert float(energies.mean()) == pytest.approx(1, rel=1e-5)


def test_the_first_round_has_equal_energies_and_remembers_noise_and_devices():
    link, given = Link(make_scheme(JOINT), Awgn(0.0, "transmit")), updates(params=4_000)
    done = communicate(link, given[0], given[1:], {}, 0)
    energies = done.sent.signal.slot_energy()
    assert torch.allclose(energies, torch.ones_like(energies), atol=1e-5)
    assert float(done.memory["num_active"]) == pytest.approx(10, abs=1)
    assert {"noise_var", "num_active"} <= set(two_rounds(JOINT, given, 0.0).broadcast.values)
    with pytest.raises(ArtefactError, match="remembers num_active"):
        communicate(link, given[0], given[1:], done.memory | {"num_active": torch.ones(3)}, 1)


def test_devices_unlike_the_base_station_spend_what_was_meant_and_are_heard():
    given = updates(params=4_000)
    given[1:] = 10 * given[1:].flip(1)
    done = two_rounds(JOINT, given, 0.0)
    assert float(done.air.energy.mean()) == pytest.approx(done.air.nominal_energy, rel=1e-5)
    assert soft_error(done) < 1


def test_the_agreed_scale_is_declared():
    assert make_scheme(JOINT).side_information == MEAN_ENERGY


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"energy": "matched"}, r"energy"),
        ({"rate": "auto"}, r"rate"),
        ({"quantize.fragment_length": 64}, "fewer parameters than the 64 uses"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make_scheme(JOINT.changed(**changes))


def test_fading_is_refused():
    with pytest.raises(ConfigError, match="the channel fades; use"):
        make_scheme(JOINT, SchemeContext(block_uses=64))
