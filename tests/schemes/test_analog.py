"""Analog transmission and shared pilots: exact without noise, noise as the closed form says, energy held."""

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.decoders.estimate.heard_pilots import PilotEstimate, hear_pilots
from aircomp.encode.pilots import WithPilots, pilot_sequence, spread_slots
from aircomp.encode.spread import Spread
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.digital import pilots
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings

LAYERS = torch.tensor([0] * 30 + [1] * 60 + [2] * 10)


def uplink(name="analog", **settings):
    return make_scheme(SchemeSettings(name=name, **settings), SchemeContext(slot_layers=LAYERS))


def messages(seed=0, devices=10):
    rng = torch.Generator().manual_seed(seed)
    sizes = torch.tensor([1.0, 0.05, 5.0])[LAYERS].repeat_interleave(20)
    common = torch.randn(1, 2000, generator=rng)
    return (common + torch.randn(devices + 1, 2000, generator=rng)) * sizes


def exchange(link, sent, snr_db=0.0, seed=0):
    return communicate(Link(link, Awgn(snr_db, "transmit"), seed=seed), sent[0], sent[1:], {}, 0)


def test_without_noise_the_mean_is_exact():
    given = messages()
    done = exchange(uplink(), given, float("inf"))
    assert torch.allclose(done.update, given[1:].mean(0), atol=1e-5)
    assert done.output.num_active_hat == pytest.approx(10)


@pytest.mark.parametrize("gains", ["layer", "equal"])
def test_the_error_is_that_of_the_closed_form(gains):
    """Noise of variance K/(lΓ) over squared gains of every parameter, divided by K²."""
    given, link = messages(), uplink(gains=gains, pilots=40)
    errors = []
    for seed in range(40):
        done = exchange(link, given, 0.0, seed)
        # K̂ is off by a percent with 40 pilots, which the sums are freed of
        update = done.update * done.output.num_active_hat / 10
        errors.append(float((update - given[1:].mean(0)).square().sum()))
    loud = link._round(done.broadcast).gains * float(done.sent.agreed["scale"]) ** 0.5
    expected = 10 / 64 * float((1 / loud.square()).sum()) / 100
    # the mean of 40 draws of 2,000 noises: 1 % one standard deviation with gains by layer, of which one has most
    assert sum(errors) / 40 == pytest.approx(expected, rel=0.04)


def test_gains_by_layer_halve_the_error_of_layers_that_differ():
    given = messages()
    error = {}
    for gains in ("layer", "equal"):
        done = [exchange(uplink(gains=gains), given, 0.0, seed) for seed in range(10)]
        error[gains] = sum(float((d.update - given[1:].mean(0)).square().sum()) for d in done)
    assert error["layer"] < 0.6 * error["equal"]


@pytest.mark.parametrize("peak", [1.5, 36.0])
def test_mean_energy_is_one_and_the_peak_is_kept(peak):
    done = exchange(uplink(peak=peak), messages())
    energy = done.sent.signal.slot_energy()
    assert float(energy.mean()) == pytest.approx(1, abs=1e-5)
    assert float(energy.max()) <= peak * (1 + 1e-5)


def test_what_the_peak_cuts_off_is_left_to_error_feedback():
    given = messages()
    done = exchange(uplink(peak=1.5), given, float("inf"))
    assert not torch.allclose(done.sent.reconstruction, given[1:])
    assert torch.allclose(done.update, done.sent.reconstruction.mean(0), atol=1e-5)


def test_lmmse_has_the_smaller_error_and_is_shorter():
    given = messages()
    truth = given[1:].mean(0)
    for_each = {}
    for estimate in ("unbiased", "lmmse"):
        updates = [exchange(uplink(estimate=estimate), given, -10.0, seed).update for seed in range(10)]
        for_each[estimate] = (
            sum(float((u - truth).square().sum()) for u in updates),
            sum(float(u @ truth / (truth @ truth)) for u in updates) / 10,
        )
    assert for_each["lmmse"][0] < for_each["unbiased"][0]
    assert for_each["lmmse"][1] < 0.95 < for_each["unbiased"][1] < 1.05


def test_silent_messages_leave_everything_finite():
    done = exchange(uplink(), torch.zeros(11, 2000))
    assert done.update.isfinite().all()


def test_with_fewer_uses_than_parameters_a_round_carries_some_of_them():
    given = messages()
    done = exchange(uplink(codeword_length=16), given, float("inf"))
    sent = done.sent.reconstruction.any(0)
    assert int(sent.sum()) == (100 - 4) * 16  # a use for each, beside four slots with pilots
    assert torch.allclose(done.sent.reconstruction[:, sent], given[1:, sent])
    assert torch.allclose(done.update, done.sent.reconstruction.mean(0), atol=1e-5)
    other = communicate(Link(uplink(codeword_length=16), Awgn(0.0)), given[0], given[1:], {}, 1)
    assert not torch.equal(other.sent.reconstruction.any(0), sent)


def test_a_round_has_the_uses_of_the_digital_link():
    digital = make_scheme(SchemeSettings(name="gamp"), SchemeContext(slot_layers=LAYERS))
    uses = [exchange(link, messages()).air.channel_uses for link in (uplink(), uplink("baa"), digital)]
    assert uses == [6400, 6400, 6400]


def test_pilots_that_leave_nothing_are_refused():
    with pytest.raises(ConfigError, match=r"pilots = 0: expected 1 to 1,000,000"):
        uplink(pilots=0)
    with pytest.raises(ConfigError, match=r"uplink.pilots = 100 leaves none of the round's 100 slots"):
        exchange(uplink(pilots=100), messages())


def test_the_longest_update_sets_the_scale_of_cotaf():
    given = messages()
    given[3] *= 2
    air = exchange(uplink("cotaf"), given).air
    assert float(air.energy.max()) == pytest.approx(100, rel=1e-5)
    assert float(air.energy.mean()) < 60
    assert float(exchange(uplink("baa"), given).air.energy.mean()) == pytest.approx(100, rel=1e-5)


@pytest.mark.parametrize("snr_db", [0.0, 10.0])
def test_broadband_analog_has_its_closed_form(snr_db):
    """Independent messages: the NMSE of the mean is 1/(RΓ), for any number of devices (`transmit`)."""
    given = torch.randn(11, 20_000, generator=torch.Generator().manual_seed(0))
    link = make_scheme("baa")
    done = [exchange(link, given, snr_db, seed) for seed in range(5)]
    truth = given[1:].mean(0)
    error = sum(float((d.update * d.output.num_active_hat / 10 - truth).square().sum()) for d in done) / 5
    expected = 10 ** (-snr_db / 10) / (done[0].air.channel_uses / 20_000)
    # 100,000 squares: half a percent; pilots are 2 % of the uses, and carry no data
    assert error / float(truth.square().sum()) * 0.98 == pytest.approx(expected, rel=0.02)


def test_pilots_tell_devices_and_noise():
    rng = torch.Generator().manual_seed(0)
    sequence = pilot_sequence(64)
    heard = 7 * sequence + 0.3 * torch.randn(400, 64, generator=rng)
    told = hear_pilots(heard, sequence, torch.arange(400))
    # standard error of the number: 0.3/√400
    assert told.num_active == pytest.approx(7, abs=0.06)
    assert told.num_active_error == pytest.approx(0.3 / 20, rel=0.02)
    assert told.noise_var == pytest.approx(0.09, rel=0.03)


def test_pilots_tell_the_devices_of_every_block():
    sequence, places = pilot_sequence(64), spread_slots(100, 4)
    heard = torch.full((100, 1), 7.0) * sequence
    heard[50:] = 3 * sequence
    told = hear_pilots(heard, sequence, places, [slice(0, 50), slice(50, 90), slice(90, 100)])
    assert told.in_slots.tolist() == pytest.approx([7.0] * 50 + [3.0] * 40 + [5.0] * 10)
    assert told.num_active == pytest.approx(5.2)


def test_a_signal_with_pilots_adds_up_like_its_devices_one_by_one():
    rng = torch.Generator().manual_seed(0)
    values = torch.randn(3, 5, 20, generator=rng)
    basis = torch.linalg.qr(torch.randn(64, 20, generator=rng))[0].T
    signal = WithPilots(Spread(values, basis), pilot_sequence(64), torch.tensor([1, 6]), torch.tensor([1.0, 2.0, 0.5]))
    assert torch.allclose(signal.superpose(None)[0], sum(signal.each()), atol=1e-5)
    assert signal.slot_energy().shape == (3, 7)
    each = torch.stack(list(signal.each()))
    assert torch.allclose(signal.slot_energy(), each.double().square().sum(2), atol=1e-4)
    assert torch.allclose(signal.slot_peak(), each.double().square().amax(2), atol=1e-4)


@pytest.mark.parametrize("name", ["gamp", "amp-da"])
def test_the_digital_link_takes_the_number_of_devices_from_its_pilots(name):
    given = messages()
    link = make_scheme(SchemeSettings(name=name, pilots=50), SchemeContext(slot_layers=LAYERS))
    done = exchange(link, given, 0.0)
    assert done.sent.pilot_uses == 50 * 64
    assert done.air.num_slots == 100
    assert int(done.sent.reconstruction.any(0).sum()) <= 50 * 20  # the pilots have the place of the other half
    assert done.output.num_active_hat == pytest.approx(10, abs=0.2)


@pytest.mark.parametrize(("error", "expected"), [(2.0, 10.0), (0.0, 9.0)])
def test_what_pilots_and_data_tell_of_the_number_is_joined_by_standard_errors(monkeypatch, error, expected):
    told = PilotEstimate(9.0, 0.1, torch.full((100,), 9.0), error)
    monkeypatch.setattr(pilots, "hear_pilots", lambda *heard: told)
    link = make_scheme(SchemeSettings(name="gamp-net", pilots=2), SchemeContext(slot_layers=LAYERS))
    assert exchange(link, messages(), 20.0).output.num_active_hat == pytest.approx(expected, abs=0.02)
