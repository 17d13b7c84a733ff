import math

import pytest
import torch

from aircomp.channel.awgn import noise_variance
from aircomp.channel.settings import ChannelSettings
from aircomp.errors import ConfigError, ShapeError

SIGNAL = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0], [3.0, 1.0, 1.0, 1.0]])


def test_round_reference_is_one_variance_from_the_mean_power_of_all_slots():
    # powers of the slots 1, 0 and 3, their mean 4/3, over 10 dB
    expected = torch.full((3,), 4 / 3 / 10)
    torch.testing.assert_close(noise_variance(SIGNAL, 10.0, "round", num_active=2), expected, rtol=1e-6, atol=0)


def test_slot_reference_uses_each_slots_own_power_and_none_for_a_silent_slot():
    expected = torch.tensor([0.1, 0.0, 0.3])
    torch.testing.assert_close(noise_variance(SIGNAL, 10.0, "slot", num_active=2), expected, rtol=1e-6, atol=0)


def test_transmit_reference_depends_on_devices_and_uses_but_not_on_what_was_sent():
    expected = torch.full((3,), 5 * 1 / 4 / 100)  # K_a p / Γ with p = 1/l
    for signal in (SIGNAL, 7 * SIGNAL, 0 * SIGNAL):
        torch.testing.assert_close(noise_variance(signal, 20.0, "transmit", num_active=5), expected, rtol=1e-6, atol=0)
    double = noise_variance(SIGNAL, 20.0, "transmit", num_active=5, power=2.0 / 4)
    torch.testing.assert_close(double, 2 * expected, rtol=1e-6, atol=0)


def test_references_agree_when_codewords_are_orthogonal():
    signal = torch.eye(4)  # one device a slot, unit energy: every power is 1/l
    variances = [noise_variance(signal, 3.0, r, num_active=1) for r in ("round", "slot", "transmit")]
    torch.testing.assert_close(variances[0], variances[1], rtol=1e-6, atol=0)
    torch.testing.assert_close(variances[0], variances[2], rtol=1e-6, atol=0)


def test_ten_decibels_less_is_ten_times_the_noise():
    low, high = (noise_variance(SIGNAL, snr_db, "round", num_active=1) for snr_db in (-20.0, -10.0))
    torch.testing.assert_close(low, 10 * high, rtol=1e-6, atol=0)


@pytest.mark.parametrize("reference", ["round", "slot", "transmit"])
def test_infinite_snr_is_no_noise(reference):
    assert (noise_variance(SIGNAL, math.inf, reference, num_active=2) == 0).all()


@pytest.mark.parametrize("reference", ["round", "slot", "transmit"])
def test_no_active_device_is_no_noise(reference):
    assert (noise_variance(0 * SIGNAL, 0.0, reference, num_active=0) == 0).all()


def test_a_round_without_slots_has_no_variances():
    assert noise_variance(torch.zeros(0, 4), 0.0, "round", num_active=0).shape == (0,)


@pytest.mark.parametrize("snr_db", [-math.inf, math.nan, -301.0])
def test_an_snr_that_is_no_number_of_decibels_is_refused(snr_db):
    with pytest.raises(ConfigError, match=r"snr_db = .*: expected decibels"):
        noise_variance(SIGNAL, snr_db, "round", num_active=1)


def test_the_lowest_snr_is_still_finite_in_float32():
    assert torch.isfinite(noise_variance(100 * SIGNAL, -100.0, "round", num_active=1)).all()


@pytest.mark.usefixtures("as_in_production")
def test_an_unknown_reference_names_the_nearest():
    with pytest.raises(ConfigError, match="there is no SNR reference 'rounds': did you mean 'round'"):
        noise_variance(SIGNAL, 0.0, "rounds", num_active=1)  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("signal", [torch.zeros(4), torch.zeros(3, 0), torch.zeros(3, 4, dtype=torch.int64)])
def test_a_signal_of_the_wrong_shape_or_type_is_refused(signal):
    with pytest.raises(ShapeError, match=r"signal is .* of shape"):
        noise_variance(signal, 0.0, "round", num_active=1)


def test_a_signal_that_is_not_finite_is_refused():
    with pytest.raises(ShapeError, match="signal holds values that are not finite"):
        noise_variance(SIGNAL / 0, 0.0, "round", num_active=1)


def test_a_negative_number_of_devices_is_refused():
    with pytest.raises(ConfigError, match="num_active = -1"):
        noise_variance(SIGNAL, 0.0, "transmit", num_active=-1)


def test_a_learned_codebook_gets_no_gradient_through_the_noise_level():
    signal = SIGNAL.clone().requires_grad_()
    assert not noise_variance(signal, 0.0, "slot", num_active=1).requires_grad


@pytest.mark.parametrize("snr_db", [math.inf, -math.inf, math.nan])
def test_settings_refuse_what_a_result_file_cannot_hold(snr_db):
    with pytest.raises(ConfigError, match=r"snr_db = .*finite"):
        ChannelSettings(snr_db=snr_db)
