"""The learned analog code as a scheme; `tests/schemes/test_rivals.py` and the conformance suite have what it shares."""

import pytest
import torch

import aircomp
from aircomp.channel.awgn import Awgn
from aircomp.channel.base import Direct
from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.encode.settings import AnalogCodeSettings
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.analog_code import AnalogCode, AnalogNetworks
from aircomp.link import Link, communicate
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings


@pytest.fixture
def given():
    """Return updates of a base station and ten devices that agree in part, with a hundred loud fragments of two hundred."""
    rng = torch.Generator().manual_seed(0)
    loud = (torch.arange(4000) // 20 % 2 * 4.9 + 0.1) * torch.randn(1, 4000, generator=rng).abs()
    return loud * (torch.randn(1, 4000, generator=rng) + torch.randn(11, 4000, generator=rng))


def exchange(name, given, snr_db, context=None, **settings):
    uplink = make_scheme(SchemeSettings(name=name, **settings), context)
    return communicate(Link(uplink, Awgn(snr_db, "transmit")), given[0], given[1:], {}, 0)


def error(done, given):
    truth = given[1:].mean(0)
    return float((done.update - truth).square().sum() / truth.square().sum())


@pytest.mark.parametrize(("snr_db", "share"), [(-10.0, 0.8), (0.0, 0.97), (20.0, 1.25)])
def test_it_is_better_than_analog_in_noise_and_about_as_good_without(given, snr_db, share):
    """A slot of 64 uses carries 20 parameters, one of `analog` 21, for pilots; the fragments left out cost the rest."""
    assert error(exchange("learned-analog", given, snr_db), given) < share * error(
        exchange("analog", given, snr_db), given
    )


def test_without_noise_what_was_sent_arrives_exactly(given):
    done = exchange("learned-analog", given, 200.0)
    sent = done.sent.reconstruction.mean(0)
    torch.testing.assert_close(done.update, sent, rtol=1e-3, atol=1e-4 * float(sent.abs().max()))


def test_fragments_of_least_energy_make_room_for_pilots(given):
    done = exchange("learned-analog", given, 200.0)
    left = done.broadcast.values["left_out"]
    energy = given[0].view(200, 20).square().sum(1)
    pilots = len(make_scheme("learned-analog")._round(done.broadcast).air.places)
    assert left.tolist() == energy.argsort()[:pilots].sort().values.tolist()
    kept = done.sent.reconstruction.view(10, 200, 20)
    assert not kept[:, left].any()
    assert (kept.abs().sum((0, 2)) > 0).sum() == 200 - len(left)


def test_fewer_slots_carry_the_fragments_of_most_energy(given):
    done = exchange("learned-analog", given, 20.0, quantize={"fragment_length": 40})
    assert done.air.channel_uses == 100 * 64
    quiet = given[0].view(200, 20).square().sum(1) < 1
    assert not done.sent.reconstruction.view(10, 200, 20)[:, quiet].any()
    more = exchange("learned-analog", given, 20.0, quantize={"fragment_length": 10})
    assert more.air.channel_uses == 400 * 64
    assert float(more.air.energy.mean()) == pytest.approx(400, rel=0.01)
    assert error(more, given) < 0.6 * error(exchange("learned-analog", given, 20.0), given)


def test_the_base_station_may_join(given):
    done = exchange("learned-analog", given, 200.0, SchemeContext(include_base_station=True))
    sent = done.sent.reconstruction.any(0)
    expected = (done.sent.reconstruction.sum(0) + given[0]) / 11
    torch.testing.assert_close(done.update[sent], expected[sent], rtol=1e-3, atol=1e-3)


def test_a_code_of_ones_own_is_loaded_and_a_wrong_directory_refused(given, tmp_path):
    AnalogCode(AnalogNetworks(AnalogCodeSettings(width=4), 10, 32)).save(tmp_path / "code")
    done = exchange("learned-analog", given, 200.0, layer=tmp_path / "code", quantize={"fragment_length": 10})
    assert done.air.channel_uses == 400 * 32
    with pytest.raises(ArtefactError, match=r"layer.json does not exist"):
        exchange("learned-analog", given, 5.0, layer=tmp_path)


def test_it_needs_pilots(given):
    with pytest.raises(ConfigError, match="pilots = 0: expected 1 to 1,000,000"):
        exchange("learned-analog", given, 5.0, pilots=0)


def of_each(tmp_path, devices):
    """Return the settings of a scheme with a network for each of some devices, not trained."""
    AnalogCode(AnalogNetworks(AnalogCodeSettings(form="free", width=4, devices=devices), 20, 64)).save(tmp_path)
    return {"layer": tmp_path}


def test_devices_with_networks_of_their_own_send_by_their_snr(given, tmp_path):
    quiet, loud = (exchange("learned-analog", given, snr_db, **of_each(tmp_path, 10)) for snr_db in (0.0, 10.0))
    energies = quiet.air.energy
    assert float(energies.mean()) == pytest.approx(200, rel=0.01)
    assert float(energies.std()) > 0.1  # networks differ, so devices spend differently
    parts = [done.sent.signal.data.values for done in (quiet, loud)]
    assert float((parts[0] - parts[1]).abs().max()) > 1e-3


def test_over_fading_every_block_has_its_snr(given, tmp_path):
    code = {"layer": of_each(tmp_path, 10)["layer"]}
    air = Fading(ChannelSettings(kind="fading", snr_db=10.0, block_slots=40), PowerSettings(control="phase"))
    uplink = make_scheme(SchemeSettings(name="learned-analog", **code), SchemeContext(block_uses=40 * 64))
    done = communicate(Link(uplink, air), given[0], given[1:], {}, 0)
    assert torch.isfinite(done.update).all()
    assert done.update.any()


def test_more_devices_than_trained_for_are_refused_before_training(given, tmp_path, digits, quick):
    options = of_each(tmp_path, 3)
    said = (
        r"devices may send at once, but uplink = 'learned-analog' is for 3 at most; train a code of more code\.devices"
    )
    with pytest.raises(ConfigError, match=f"10 {said}"):
        exchange("learned-analog", given, 0.0, **options)
    with pytest.raises(ConfigError, match=said):
        aircomp.simulate(quick, dataset=digits, uplink="learned-analog", **{"uplink.layer": str(tmp_path)})


def test_a_channel_that_tells_no_snr_is_refused(given, tmp_path):
    uplink = make_scheme(SchemeSettings(name="learned-analog", **of_each(tmp_path, 10)))
    with pytest.raises(ConfigError, match="sends by the devices' SNR, which this channel does not tell"):
        communicate(Link(uplink, Direct()), given[0], given[1:], {}, 0)
