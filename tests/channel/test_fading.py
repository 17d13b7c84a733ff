"""The fading channel against closed forms: moments of gains, power control, errors, and what arrives."""

import math

import pytest
import torch
from scipy import special

from aircomp.channel.fading import Fading
from aircomp.channel.power import Belief, threshold_of
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.channel.signal import Symbols
from aircomp.common.packing import pack, unpack
from aircomp.common.rng import generator
from aircomp.errors import ConfigError
from aircomp.testing import check_channel
from helpers.draws import seeded

MANY = 100_000
"""Draws: a mean of order one is known to about .003, three standard errors .01."""


def fading(control="none", power=None, **settings):
    settings = {"kind": "fading", "snr_db": 200.0, "block_slots": 1} | settings
    return Fading(ChannelSettings(**settings), PowerSettings(control=control, **(power or {})))


def arriving(channel, devices=MANY, blocks=1):
    """Return gains behind power control over the level, and the scale of each device."""
    csi = channel.sound(devices, 64 * blocks, rng=seeded(1))
    return csi.with_power.values / csi.level[None, :, None], csi.at_devices.scale


# ── the gains ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("settings", [{}, {"rician_factor": 4.0}, {"correlation": 0.9}])
def test_gains_have_mean_power_one_and_no_mean(settings):
    values, _ = arriving(fading(antennas=4, **settings))
    assert values.abs().square().mean().item() == pytest.approx(1, abs=0.01)
    assert abs(values.mean().item()) < 0.01


@pytest.mark.parametrize("antennas", [1, 8, 64])
def test_power_over_the_antennas_hardens(antennas):
    values, _ = arriving(fading(antennas=antennas), 20_000)
    spread = values.abs().square().mean(2).var().item()
    # the variance of 20,000 nearly normal numbers is known to 1 %; of exponential ones to 2 %
    assert spread == pytest.approx(1 / antennas, rel=0.06)


def test_a_strong_direct_path_leaves_no_fading():
    values, _ = arriving(fading(antennas=2, rician_factor=1e6), 1000)
    torch.testing.assert_close(values.abs(), torch.ones(1000, 1, 2), atol=0.02, rtol=0)


def test_neighbouring_antennas_correlate_as_asked():
    values, _ = arriving(fading(antennas=3, correlation=0.6))
    products = values[:, 0, :, None] * values[:, 0, None, :].conj()
    expected = torch.tensor([[1, 0.6, 0.36], [0.6, 1, 0.6], [0.36, 0.6, 1]])
    torch.testing.assert_close(products.mean(0).real, expected, atol=0.01, rtol=0)


def test_devices_over_a_disc_have_the_path_gains_of_the_closed_form():
    csi = fading(path_loss=3.76, rician_factor=1e6).sound(MANY, 64, rng=seeded(1))
    decibels = 20 * csi.gains.values.abs().flatten().log10()
    nearest_tenth, median = torch.quantile(decibels[:100_000], torch.tensor([0.9, 0.5])).tolist()
    assert (nearest_tenth, median) == (pytest.approx(18.8, abs=0.2), pytest.approx(5.66, abs=0.1))


def test_blocks_have_gains_of_their_own_and_slots_of_a_block_share_them():
    csi = fading(block_slots=4, antennas=2).sound(3, 64 * 10, rng=seeded(1))
    assert csi.gains.values.shape == (3, 3, 2)  # the last block is cut short
    of_slots = csi.gains.of_slots(10, 64)
    assert torch.equal(of_slots[:, 0], of_slots[:, 3])
    assert not torch.isclose(of_slots[:, 3], of_slots[:, 4]).any()
    longer = fading(block_slots=4, antennas=2).sound(3, 64 * 100, rng=seeded(1))
    assert torch.equal(longer.gains.values[:, :3], csi.gains.values)


def test_the_length_of_blocks_does_not_change_the_law_of_a_gain():
    short, whole = (arriving(fading(block_slots=b), 400, 64)[0].abs().square() for b in (1, 64))
    assert (short.mean().item(), whole.mean().item()) == (pytest.approx(1, abs=0.03), pytest.approx(1, abs=0.16))


def test_a_block_longer_than_the_round_is_cut_short():
    assert fading(block_slots=10**6).sound(2, 64, rng=seeded(1)).gains.values.shape == (2, 1, 1)


# ── power control ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("g", "silent", "level_db", "peak_db", "v0"),
    [(0.0196, 0.019, -5.3, 11.8, 3.44), (0.1, 0.095, -2.6, 7.4, 2.01), (0.5, 0.393, 2.5, 5.5, 0.92)],
)
def test_truncated_inversion_has_the_closed_forms(g, silent, level_db, peak_db, v0):
    channel = fading("inversion", {"threshold": g})
    csi = channel.sound(400_000, 64, rng=seeded(1))
    power = csi.at_devices.scale.abs().double().square()
    assert power.mean().item() == pytest.approx(1, rel=0.01)
    assert (power == 0).double().mean().item() == pytest.approx(silent, abs=1e-3)
    assert 20 * math.log10(csi.level.item()) == pytest.approx(level_db, abs=0.06)
    assert 10 * math.log10(power.max().item()) == pytest.approx(peak_db, abs=0.06)
    assert math.exp(g) * special.exp1(g) == pytest.approx(v0, rel=0.005)
    values = csi.with_power.values[power != 0] / csi.level.item()
    torch.testing.assert_close(values, torch.ones_like(values), atol=1e-5, rtol=0)


@pytest.mark.parametrize("settings", [{"rician_factor": 3.0}, {"path_loss": 3.76}, {"csi_correlation": 0.9}])
@pytest.mark.parametrize("control", ["inversion", "statistical", "phase", "none"])
def test_the_mean_power_is_one_whatever_fades(control, settings):
    errors = {k: v for k, v in settings.items() if k == "csi_correlation"} | {"power_db": 2.0}
    others = {k: v for k, v in settings.items() if k not in errors}
    _, scale = arriving(fading(control, rician_factor=others.pop("rician_factor", 1.0), **others, errors=errors))
    assert scale.abs().square().mean().item() == pytest.approx(1, abs=0.015)  # of lognormal and 1/|h|² numbers


@pytest.mark.parametrize(("rho", "variance"), [(0.99, 0.0401), (0.95, 0.196)])
def test_errors_of_belief_spread_what_arrives_as_the_closed_form_says(rho, variance):
    channel = fading("inversion", errors={"csi_correlation": rho})
    values, scale = arriving(channel)
    sent = values[:, :, 0][scale != 0]
    assert sent.real.mean().item() == pytest.approx(rho, abs=0.003)
    assert (sent - rho).abs().square().mean().item() == pytest.approx(variance, rel=0.02)
    model = channel.gain_model
    assert (model.mean, model.var_real + model.var_imag) == (
        pytest.approx(rho, abs=0.003),
        pytest.approx(variance, rel=0.03),
    )


def test_a_peak_limit_takes_the_smallest_threshold_that_keeps_it():
    found = threshold_of(PowerSettings(control="inversion", peak_db=7.4), Belief())
    assert found == pytest.approx(0.1, rel=0.01)
    assert -10 * math.log10(found * special.exp1(found)) == pytest.approx(7.4, abs=1e-6)


def test_a_peak_that_no_inversion_keeps_is_refused_in_one_sentence():
    with pytest.raises(ConfigError, match=r"power.peak_db = 5: inversion peaks 5.5 dB above"):
        fading("inversion", {"peak_db": 5.0}).sound(2, 64, rng=seeded())


def test_phase_alone_has_the_moments_of_the_closed_form():
    s = math.radians(30)
    model = fading("phase", errors={"phase_deg": 30.0}).gain_model
    assert model.mean == pytest.approx(math.sqrt(math.pi / 4) * math.exp(-(s**2) / 2), abs=0.005)
    values, _ = arriving(fading("phase"))
    assert values.abs().var().item() == pytest.approx(0.215, abs=0.003)
    assert values.imag.abs().max().item() < 1e-5


def test_a_phase_error_alone_has_the_moments_of_the_closed_form():
    s2 = math.radians(20) ** 2
    model = fading("inversion", errors={"phase_deg": 20.0}).gain_model
    mean = math.exp(-s2 / 2)
    assert model.mean == pytest.approx(mean, abs=0.001)
    assert model.var_imag == pytest.approx((1 - math.exp(-2 * s2)) / 2, rel=0.02)
    assert model.var_real == pytest.approx((1 + math.exp(-2 * s2)) / 2 - mean**2, rel=0.05)


def test_under_a_common_scale_all_arrive_as_the_weakest():
    csi = fading("common", path_loss=3.76).sound(10, 64 * 50, rng=seeded(1))
    power = csi.at_devices.scale.abs().square()
    torch.testing.assert_close(power.amax(0), torch.ones(50), atol=1e-5, rtol=0)
    values = csi.with_power.values[:, :, 0]
    torch.testing.assert_close(values, csi.level.expand(10, 50).to(values), atol=1e-5, rtol=1e-4)


def test_the_farthest_of_many_in_a_disc_is_where_the_closed_form_says():
    k, alpha = 10, 3.76
    gains = fading(path_loss=alpha, rician_factor=1e6, block_slots=1).sound(MANY, 64, rng=seeded(1)).gains.values
    weakest = gains.abs().square().view(-1, k).amin(1)
    assert weakest.reciprocal().mean().item() == pytest.approx(k / (k + alpha / 2), rel=0.01)


# ── errors and what arrives ──────────────────────────────────────────────────────────────────────────────────────────


def test_no_error_is_on_by_default():
    errors = ChannelSettings(kind="fading").errors
    assert errors.model_dump() == {"csi_correlation": 1, "phase_deg": 0, "power_db": 0, "timing": 0, "frequency": 0}
    values, _ = arriving(fading("inversion"), 1000)
    assert fading("inversion").gain_model.var_real == 0
    assert values[values != 0].sub(1).abs().max().item() < 1e-5


@pytest.mark.parametrize("error", [{"phase_deg": 30.0}, {"power_db": 3.0}, {"timing": 0.3}, {"frequency": 1e-3}])
def test_an_error_changes_nothing_else(error):
    plain, off = (fading("inversion", antennas=2, errors=e).sound(5, 640, rng=seeded(1)) for e in ({}, error))
    assert torch.equal(plain.gains.values, off.gains.values)
    assert torch.equal(plain.at_devices.scale == 0, off.at_devices.scale == 0)
    changed = not torch.equal(plain.at_devices.scale, off.at_devices.scale)
    assert changed != (off.offsets is not None)


def test_errors_of_power_have_the_asked_spread():
    _, scale = arriving(fading("none", errors={"power_db": 3.0}))
    power = scale.abs().square().flatten()
    assert power.log10().mul(10).std().item() == pytest.approx(3, rel=0.01)
    assert fading("none", errors={"power_db": 3.0}).gain_model.power_var == pytest.approx(0.611, abs=0.001)


ALL = {"csi_correlation": 0.9, "phase_deg": 20.0, "power_db": 2.0, "timing": 0.3, "frequency": 1e-3}


@pytest.mark.parametrize("control", ["none", "inversion", "phase", "statistical", "common", "beamforming"])
@pytest.mark.parametrize("errors", [{}, ALL])
def test_every_fading_channel_passes(control, errors):
    check_channel(lambda: fading(control, antennas=3, rician_factor=2.0, path_loss=3.0, correlation=0.5, errors=errors))


def send(channel, values, power=1.0, noise_seed=0):
    devices, slots, uses = values.shape
    csi = channel.sound(devices, slots * uses, rng=seeded(3))
    return channel.carry(Symbols(values, power), csi, rng=seeded(noise_seed)), csi


@pytest.mark.parametrize("uses", [64, 63])
def test_what_arrives_is_the_sum_of_gains_times_packed_uses(uses):
    values = torch.randn(4, 6, uses, generator=seeded())
    received, csi = send(fading(antennas=3, block_slots=2), values)
    of_slots = csi.gains.of_slots(6, uses)
    expected = torch.einsum("ksa,ksu->asu", of_slots, pack(values))
    torch.testing.assert_close(received, unpack(expected, uses), atol=1e-5, rtol=1e-5)


def test_inverted_gains_give_real_schemes_what_they_sent():
    values = torch.randn(4, 6, 64, generator=seeded())
    received, csi = send(fading("inversion", {"threshold": 1e-6}), values)
    assert (csi.at_devices.scale != 0).all()
    torch.testing.assert_close(received[0], values.sum(0), atol=1e-4, rtol=1e-4)


def test_late_and_detuned_devices_arrive_as_the_formula_says():
    values = torch.randn(3, 5, 64, generator=seeded())
    late = {"timing": 0.5, "frequency": 1e-3}
    received, csi = send(fading(antennas=2, block_slots=2, errors=late), values)
    expected = torch.zeros(2, 5 * 32, dtype=torch.complex64)
    for k in range(3):
        sent = pack(values[k]).flatten()
        delta, epsilon = csi.offsets.timing[k], csi.offsets.frequency[k]
        for m in range(160):
            before = sent[m - 1] if m else 0
            turn = torch.exp(2j * math.pi * epsilon * (m % 64))
            gain = csi.gains.values[k, m // 64] * csi.at_devices.scale[k, m // 64]
            expected[:, m] += gain * turn * ((1 - delta) * sent[m] + delta * before)
    torch.testing.assert_close(received, unpack(expected.view(2, 5, 32), 64), atol=1e-5, rtol=1e-4)


def test_a_ramp_across_a_codeword_keeps_the_energy_of_the_closed_form():
    """Of a phase that turns by φ, the matched filter keeps sinc²(φ/2π)."""
    word = torch.ones(1, 1, 64) / 8
    for degrees, kept in ((45, 0.95), (90, 0.81), (180, 0.41)):
        epsilon = degrees / 360 / 32
        channel = fading("inversion", {"threshold": 1e-9}, errors={"frequency": epsilon})
        csi = channel.sound(1, 64, rng=seeded(3))
        csi.offsets.frequency.fill_(epsilon)
        heard = channel.carry(Symbols(word, 1.0), csi, rng=seeded())[0, 0]
        assert (pack(word[0, 0]).conj() @ pack(heard)).abs().square().item() == pytest.approx(kept, abs=0.01)


@pytest.mark.parametrize("reference", ["round", "slot", "transmit"])
def test_the_noise_of_every_antenna_is_the_defined_one(reference):
    values = torch.randn(5, 400, 64, generator=seeded()) / 8
    channel = fading(antennas=4, snr_db=3.0, snr_reference=reference, block_slots=8)
    received, _ = send(channel, values, power=1 / 64)
    clean, _ = send(fading(antennas=4, block_slots=8), values, power=1 / 64)
    noise = (received - clean).square().mean().item()
    signal = 5 / 64 if reference == "transmit" else clean.square().mean().item()
    assert noise == pytest.approx(signal / 10**0.3, rel=0.02)  # 100,000 squares: .5 %


def test_equal_seeds_give_every_scheme_the_same_gains():
    channel = fading(antennas=2)
    short, long = (channel.sound(3, n, rng=generator(0, "fading", 4)) for n in (640, 6400))
    assert torch.equal(short.gains.values, long.gains.values[:, :10])


@pytest.mark.parametrize(
    "wrong",
    [
        {"antennas": 0},
        {"block_slots": 0},
        {"correlation": 1.0},
        {"correlation": -0.1},
        {"rician_factor": -1},
        {"path_loss": -1},
        {"errors": {"timing": 1.0}},
        {"errors": {"csi_correlation": 1.1}},
        {"errors": {"phase_deg": -1}},
    ],
)
def test_settings_out_of_range_are_refused_in_one_sentence(wrong):
    with pytest.raises(ConfigError, match=r"= .*: expected .* to "):
        ChannelSettings(kind="fading", **wrong)
