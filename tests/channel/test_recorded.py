"""Gains from a file: what arrives is what the file says, at mean power one, under every power control."""

import numpy as np
import pytest
import torch

import aircomp
from aircomp.channel.fading import Fading
from aircomp.channel.settings import RecordedSettings
from aircomp.errors import ArtefactError, ConfigError
from aircomp.studies.jobs import run_params
from aircomp.testing import check_channel
from helpers.draws import seeded

USERS, BLOCKS, ANTENNAS = 40, 6, 3


@pytest.fixture
def file(tmp_path):
    """Gains of users whose mean powers differ by up to 20 dB, in another unit than ours."""
    rng = seeded(0)
    small = torch.randn(USERS, BLOCKS, ANTENNAS, dtype=torch.complex128, generator=rng)
    np.save(tmp_path / "gains.npy", (1e-4 * small * 10 ** (torch.rand(USERS, 1, 1, generator=rng) - 0.5)).numpy())
    return tmp_path / "gains.npy"


def recorded(file, control="none", **values):
    values = {"antennas": ANTENNAS, "snr_db": 200.0, "block_slots": 1} | values
    return Fading(RecordedSettings(gains=file), control=control, **values)


def sounded(channel, devices=USERS, blocks=BLOCKS):
    return channel.sound(devices, 64 * blocks, rng=seeded(1))


def rows(values):
    """Sort users by their gains, so that an order drawn at random does not matter."""
    return sorted(map(tuple, values.reshape(len(values), -1).tolist()), key=lambda row: (row[0].real, row[0].imag))


def test_a_round_of_all_users_has_the_gains_of_the_file_at_mean_power_one(file):
    gains = torch.from_numpy(np.load(file))
    found = sounded(recorded(file)).gains.values.to(torch.complex128)
    scaled = gains / gains.abs().square().mean().sqrt()
    # the round begins at a block of its own, and goes round the file
    turned = [scaled.roll(-first, dims=1) for first in range(BLOCKS)]
    close = [np.allclose(rows(found), rows(each), atol=1e-6) for each in turned]
    assert sum(close) == 1


def test_no_user_sends_twice_in_a_round_and_rounds_differ(file):
    channel = recorded(file)
    first = sounded(channel, 10).gains.values
    second = channel.sound(10, 64 * BLOCKS, rng=seeded(2)).gains.values
    assert len({row[0] for row in rows(first)}) == 10
    assert rows(first) != rows(second)


def test_a_longer_round_begins_like_a_shorter_one_and_goes_round_the_file(file):
    channel = recorded(file)
    shorter, longer = sounded(channel, blocks=4).gains.values, sounded(channel, blocks=2 * BLOCKS).gains.values
    torch.testing.assert_close(longer[:, :4], shorter, rtol=0, atol=0)
    torch.testing.assert_close(longer[:, BLOCKS:], longer[:, :BLOCKS], rtol=0, atol=0)


@pytest.mark.parametrize("control", ["inversion", "phase", "common"])
def test_devices_arrive_in_phase_and_spend_one_on_average(file, control):
    csi = sounded(recorded(file, control))
    arriving = csi.with_power.values[:, :, 0] / csi.level
    torch.testing.assert_close(arriving.imag, torch.zeros_like(arriving.imag), atol=1e-5, rtol=0)
    if control != "phase":
        assert set(arriving.real.flatten().round(decimals=4).tolist()) <= {0.0, 1.0}
    spent = float(csi.at_devices.scale.abs().square().mean())
    assert spent == pytest.approx(1, abs=1e-4) if control != "common" else spent <= 1 + 1e-5


def test_statistical_control_undoes_mean_gains_at_power_one(file):
    csi = sounded(recorded(file, "statistical"))
    power = (csi.with_power.values / csi.level[:, None]).abs().square().mean(dim=(1, 2))
    torch.testing.assert_close(power, torch.ones(USERS), atol=1e-4, rtol=0)
    assert float(csi.at_devices.scale.abs().square().mean()) == pytest.approx(1, abs=1e-4)


def test_a_file_of_two_axes_has_gains_that_never_change(tmp_path):
    np.save(tmp_path / "flat.npy", np.exp(1j * np.arange(12.0)).reshape(6, 2))
    values = sounded(recorded(tmp_path / "flat.npy", antennas=2), 6).gains.values
    torch.testing.assert_close(values, values[:, :1].expand_as(values), rtol=0, atol=0)


def test_it_is_a_channel_as_every_other(file):
    check_channel(lambda: recorded(file, "inversion", snr_db=10.0))


@pytest.mark.seconds
def test_models_train_over_it(file, tmp_path):
    values = {"channel.kind": "recorded", "channel.gains": str(file), "channel.antennas": 3, "channel.block_slots": 64}
    run = aircomp.simulate("digits", rounds=1, **values, **{"power.control": "statistical"}, out=tmp_path / "run")
    assert run.row["uplink"] == "blind"
    again = aircomp.simulate(str(tmp_path / "run" / "config.toml"))
    assert again.row["count_accuracy"] == run.row["count_accuracy"]


def test_a_job_is_known_by_what_its_file_of_gains_holds(file):
    before = run_params("digits", {"channel.kind": "recorded", "channel.gains": str(file)})
    np.save(file, 2 * np.load(file))
    assert run_params("digits", {"channel.kind": "recorded", "channel.gains": str(file)}) != before


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones((4, 2)), "holds float64"),
        (np.ones(4, dtype=complex), "expected complex numbers"),
        (np.full((4, 2), np.nan + 0j), "no finite numbers"),
        (np.eye(4, dtype=complex), "3 users have gains of exactly zero"),
        (np.array([[{}]]), "damaged or no .npy file"),
    ],
)
def test_what_is_no_file_of_gains_is_refused_in_a_sentence(tmp_path, values, message):
    np.save(tmp_path / "odd.npy", values)
    with pytest.raises(ArtefactError, match=message):
        sounded(recorded(tmp_path / "odd.npy", antennas=1), 1)


def test_what_the_file_does_not_have_is_refused(file):
    with pytest.raises(ConfigError, match="gains of 40 users"):
        sounded(recorded(file), 41)
    with pytest.raises(ConfigError, match="gains of 3; ask for at most those"):
        sounded(recorded(file, antennas=4))
    with pytest.raises(ConfigError, match="no gain of the file is so large"):
        sounded(recorded(file, "inversion", threshold=10.0))
    with pytest.raises(ConfigError, match="devices know those exactly"):
        recorded(file, **{"errors.csi_correlation": 0.9})
    with pytest.raises(ConfigError, match="path_loss"):
        recorded(file, path_loss=2.0)
