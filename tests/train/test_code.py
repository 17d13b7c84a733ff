"""Training of an analog code: it learns; what it cannot use is refused."""

from dataclasses import replace

import pytest
import torch

from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.analog_code import AnalogCode, AnalogNetworks
from aircomp.train import code as coding
from aircomp.train.code import draw_batch, error_of_batch, load_code_rounds, pretrain_code
from aircomp.train.fragments import save_round
from aircomp.train.recipe import CODE_PRESETS as PRESETS
from aircomp.train.recipe import CodeSettings
from helpers.records import read_lines
from helpers.trainings import CODE as QUICK


def test_the_code_is_of_the_settings_and_errs_less_in_less_noise(finished):
    code = AnalogCode.load(finished("code"))
    assert (code.networks.fragment_length, code.networks.uses) == (4, 8)
    assert code.config["code"] == {"form": "systematic", "width": 8, "devices": None}
    errors = [row["update_nmse"] for row in code.training["test"]]
    assert errors == sorted(errors, reverse=True)


OF_EACH = {"code.form": "free", "code.devices": 4, "data.devices_high": 4, "data.fading": 0.5}


@pytest.mark.parametrize("form", [{"code.form": "systematic"}, {"code.form": "free"}, OF_EACH])
def test_training_lowers_the_error(collection, tmp_path, form):
    pretrain_code([collection], QUICK.changed(epochs=6, **form), tmp_path / "code")
    losses = [record["validation_loss"] for record in read_lines(tmp_path / "code" / "metrics.jsonl")]
    assert min(losses) < losses[0] - 0.01
    assert all(
        ("update_nmse_faded" in row) == ("data.fading" in form)
        for row in AnalogCode.load(tmp_path / "code").training["test"]
    )


def test_more_devices_than_networks_are_refused(collection):
    with pytest.raises(ConfigError, match=r"data\.devices_high = 12 is above code\.devices = 4; lower it"):
        QUICK.changed(**OF_EACH | {"data.devices_high": 12})


def test_gains_of_one_change_nothing_and_faded_devices_are_heard_by_their_gain(collection):
    """Without noise the linear path hears the sum by gains, and errs from the mean by what those of two devices differ."""
    train = load_code_rounds([collection], QUICK).train
    saved = train[0]
    batch = coding.make_batch(saved, saved.fragments[:2], torch.arange(saved.num_slots), snr_db=60.0)
    code = AnalogNetworks(QUICK.code, 4, 8).requires_grad_(False)
    torch.nn.init.constant_(code.encoder.loudness, -20.0)
    one, both = (
        float(error_of_batch(code, replace(batch, fades=torch.tensor(fades)), rng=torch.Generator().manual_seed(0)))
        for fades in ([1.0, 1.0], [1.5, 0.5])
    )
    v, w = saved.fragments[:2] / saved.gains[:, None]
    expected = float((0.5 * (v - w)).square().sum() / (v + w).square().sum())
    assert one < 1e-3
    assert both == pytest.approx(expected, rel=0.02)


def test_other_rounds_of_the_directory_lend_devices(collection):
    train = load_code_rounds([collection], QUICK).train
    assert max(len(saved.fragments) for saved in train) < 12
    data = QUICK.data.changed(devices_low=12)
    batch = draw_batch(train, 0, torch.arange(5), data, rng=torch.Generator().manual_seed(0))
    assert batch.fragments.shape == (12, 5, 4)
    few = draw_batch(train[:1], 0, torch.arange(5), data, rng=torch.Generator().manual_seed(0))
    assert len(few.fragments) == len(train[0].fragments)


def test_the_batch_sends_with_the_energy_of_the_scheme(collection):
    """Without noise to speak of the linear path is exact, so the error is that of the noise alone: l σ² d / (l K²)."""
    train = load_code_rounds([collection], QUICK).train
    saved = train[0]
    batch = coding.make_batch(saved, saved.fragments, torch.arange(saved.num_slots), snr_db=40.0)
    code = AnalogNetworks(QUICK.code, 4, 8).requires_grad_(False)
    torch.nn.init.constant_(code.encoder.loudness, -20.0)  # all energy goes to the fragment
    found = float(error_of_batch(code, batch, rng=torch.Generator().manual_seed(0)))
    devices, slots = saved.fragments.shape[:2]
    noise = devices / 8 * 1e-4 * (1 / saved.gains[:, None].expand(slots, 4)).square().sum()
    expected = float(noise / (saved.fragments.sum(0) / saved.gains[:, None]).square().sum())
    # 240 squared normals: a standard deviation of .09
    assert found == pytest.approx(expected, rel=0.3)


def test_rounds_without_raw_fragments_are_refused(tmp_path, synthetic_round):
    for index in range(3):
        save_round(tmp_path / "few", index, synthetic_round(index, raw=False))
    with pytest.raises(ConfigError, match=r"holds no raw fragments.*collect with --raw"):
        pretrain_code([tmp_path / "few"], QUICK, tmp_path / "out")


def test_fragments_of_several_lengths_are_refused(collection, tmp_path, synthetic_round):
    saved = synthetic_round(0)
    short = {name: getattr(saved, name)[..., :3] for name in ("fragments", "bs_fragments", "quant_codebook")}
    save_round(tmp_path / "short", 0, replace(saved, **short))
    with pytest.raises(ArtefactError, match=r"fragments of \[3, 4\] parameters; train on collections of one size"):
        load_code_rounds([collection, tmp_path / "short"], QUICK)


def test_a_code_needs_more_uses_than_parameters(collection, tmp_path):
    with pytest.raises(ConfigError, match="codeword_length = 4: the systematic form needs more uses"):
        pretrain_code([collection], QUICK.changed(codeword_length=4), tmp_path / "out")


def test_the_preset_covers_what_the_scheme_meets():
    data = PRESETS.load("learned-analog").data
    assert (data.snr_db_low, data.snr_db_high, data.devices_low, data.devices_high) == (-10, 20, 2, 40)


@pytest.mark.parametrize("wrong", [{"snr_db_low": 21.0}, {"devices_low": 41}, {"validation_fraction": 0.9}])
def test_ranges_the_wrong_way_round_are_refused(wrong):
    with pytest.raises(ConfigError, match=r"swap them|lower one of them"):
        CodeSettings().changed(**{f"data.{name}": value for name, value in wrong.items()})
