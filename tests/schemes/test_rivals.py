"""Rivals of the digital link: closed forms, thresholds, floors, and who is refused."""

import itertools
import math

import pytest
import torch
from scipy import special

import aircomp
from aircomp.channel.awgn import Awgn
from aircomp.channel.base import make_channel
from aircomp.channel.capacity import joint_rate, sum_rate
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.common import rng as rngs
from aircomp.encode.carrier import plan_air, take
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.computation_rate import best_levels
from aircomp.schemes.outputs import Vote
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings
from helpers.schemes import RIVALS

HARDENED = ("reed",)
"""Schemes whose devices disturb each other on few antennas, also without noise."""


def heavy_tailed(devices, params, seed=0):
    return torch.randn(devices + 1, params, generator=torch.Generator().manual_seed(seed)) ** 3


def exchange(uplink, given, snr_db, *, seed=0, channel=None, memory=None):
    rule = "sign-vote" if uplink.offers is Vote else "mean"
    link = Link(uplink, channel or Awgn(snr_db, "transmit"), rule, seed=seed)
    return communicate(link, given[0], given[1:], memory or {}, 0)


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_has_the_uses_and_the_energy_of_the_digital_link(name):
    given = heavy_tailed(10, 4000)
    air = exchange(make_scheme(name), given, 5.0).air
    assert air.channel_uses == exchange(make_scheme("gamp"), given, 5.0).air.channel_uses == 12_800
    if name != "cotaf":  # whose largest device has it
        assert float(air.energy.mean()) == pytest.approx(200, rel=0.01)


@pytest.mark.parametrize("name", RIVALS)
def test_every_rival_hears_over_fading_what_was_sent(name, rng):
    """Inversion lets signals arrive in phase; whoever is silent in a block is missing there, and only there."""
    given = torch.randn(11, 4000, generator=rng)
    settings = ChannelSettings(kind="fading", snr_db=60.0, snr_reference="transmit", block_slots=50)
    channel = make_channel(settings, PowerSettings(control="inversion"))
    uplink = make_scheme(SchemeSettings(name=name), SchemeContext(block_uses=50 * 64))
    done = exchange(uplink, given, 60.0, channel=channel)
    assert done.sent.delivered is not None
    assert not done.sent.delivered.all()
    sent = done.sent.reconstruction
    if uplink.offers is Vote or name in HARDENED:
        assert done.update.isfinite().all()
        return
    # analog and digits divide by the devices of each block, turns by all of whom anything arrives
    turns = name in (
        "tdma-vq",
        "tdma-coded",
        "tdma-qsgd",
        "tdma-sign",
        "tdma-topk",
        "tdma-entropy",
        "d-dsgd",
        "a-dsgd",
        "ca-dsgd",
        "capacity",
    )
    number = sent.any(1).sum() if turns else (sent != 0).sum(0).clamp(min=1)
    if name in ("channelcomp", "tbma-lattice"):  # zero is one of their levels
        number = done.output.counts.sum(1)
    if name == "channelcomp-noise-aware":  # which tells no counts
        carrier = uplink._round(done.broadcast).carrier
        number = carrier.arrived(torch.ones_like(sent), done.sent.delivered).sum(0).clamp(min=1)
    mean = sent.sum(0) / number
    error = (done.update - mean).square().sum() / mean.square().sum()
    # qsgd is right on average alone; sums of a-dsgd mix silent slots with others; networks
    # approximate; at 60 dB nothing else is left: digits have
    # 3e-5 of error, and .006 with one number of devices for all blocks
    assert float(error) < {"tdma-qsgd": 0.5, "a-dsgd": 0.3, "ca-dsgd": 0.3, "nomographic": 0.3}.get(name, 2e-4)


# ── turns ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["tdma-vq", "capacity"])
@pytest.mark.parametrize(("snr_db", "same"), [(5.4, False), (5.6, True)])
def test_turns_carry_all_indices_from_five_and_a_half_decibels_on(name, snr_db, same):
    """Ten devices, 7 bits for 20 parameters in 6.4 uses each: log2(1 + Γ) = 2.1875, that is 5.51 dB."""
    given = heavy_tailed(10, 4000)
    turns, perfect = (
        communicate(Link(make_scheme(name), Awgn(snr_db), readout="integers"), given[0], given[1:], {}, 0)
        for name in (name, "perfect")
    )
    assert torch.allclose(turns.update, perfect.update, rtol=1e-5, atol=1e-7) == same
    assert turns.output.num_active_hat == 10


@pytest.mark.parametrize("name", ["tdma-vq", "tdma-qsgd", "tdma-sign", "tdma-topk", "tdma-entropy", "d-dsgd"])
def test_more_bits_arrive_more_exactly_and_peaks_cost_them(name):
    given = heavy_tailed(10, 4000)

    def lost(snr_db, **settings):
        done = exchange(make_scheme(SchemeSettings(name=name, **settings)), given, snr_db)
        vectors = done.sent.payload
        return float((vectors - given[1:]).square().sum() / given[1:].square().sum())

    assert lost(0.0) > lost(10.0)
    assert lost(10.0, peak=1.0) > lost(10.0)
    assert lost(0.0, gap_db=6.0) > lost(0.0)


def test_devices_without_a_turn_are_left_out():
    done = exchange(make_scheme("tdma-vq"), heavy_tailed(10, 160), 30.0)
    assert done.air.num_slots == 8
    assert done.output.num_active_hat == 8
    assert not done.sent.reconstruction[8:].any()
    assert float(done.air.energy.mean()) == pytest.approx(done.air.nominal_energy)


def test_qsgd_is_right_on_average(rng):
    from aircomp.quantize.compress import qsgd

    message, order = torch.randn(2000, generator=rng), torch.arange(2000)
    mean = torch.stack([qsgd(message, 2000 * 4.0, order, rng)[0] for _ in range(400)]).mean(0)
    # at 4 bits eight levels of a norm of about 8, for some: a step of one, half a one of deviation at most, over twenty
    sent = mean != 0
    assert 0.5 < float(sent.float().mean()) <= 1
    assert float((mean - message)[sent].abs().mean()) < 0.03


def test_places_of_the_largest_take_the_bits_of_their_number():
    from aircomp.quantize.compress import largest_that_fits, places_bits

    assert places_bits(10, 3) == pytest.approx(math.log2(120))
    k = largest_that_fits(269_722, 0.160 * 269_722, 8, 32)
    assert k / 269_722 == pytest.approx(0.010, abs=0.0005)  # as derived for ten devices at 0 dB
    q = largest_that_fits(269_722, 0.554 * 269_722, 0, 33)
    assert q / 269_722 == pytest.approx(0.129, abs=0.001)


def by_all_sets(gains):
    """Return the rate that no set of devices exceeds, in bits of a real channel use."""
    sets = [list(s) for n in range(1, len(gains) + 1) for s in itertools.combinations(range(len(gains)), n)]
    return min(
        float(torch.logdet(torch.eye(len(s)) + (gains[s] @ gains[s].mH)).real) / len(s) for s in sets
    ) / math.log(4)


@pytest.mark.parametrize("antennas", [1, 4])
def test_the_joint_rate_is_that_of_the_worst_set_of_devices_or_a_bound(antennas, rng):
    gains = torch.randn(5, 8, antennas, generator=rng, dtype=torch.complex128) * 3
    gains[0, 3] = 0  # silent
    truth = [by_all_sets(g[g.abs().sum(1) > 0]) for g in gains.unbind(1)]
    found = joint_rate(gains).double()
    if antennas == 1:
        torch.testing.assert_close(found, torch.tensor(truth, dtype=torch.float64), rtol=1e-5, atol=0)
    assert (found >= torch.tensor(truth) * (1 - 1e-5)).all()
    assert (found <= 1.3 * torch.tensor(truth)).all()


@pytest.mark.parametrize(("snr_db", "bits"), [(9.5, 0.0), (10.0, 0.0688), (20.0, 1.668)])
def test_sums_arrive_at_the_rate_of_compute_and_forward(snr_db, bits):
    """½ log2((1 + Γ)/K): nothing below Γ = K − 1, that is 9.54 dB for ten devices."""
    alone = torch.full((10, 1, 1), math.sqrt(10 ** (snr_db / 10) / 10))
    assert float(sum_rate(alone)) == pytest.approx(bits, abs=1e-3)
    turned = alone * torch.exp(2j * math.pi * torch.arange(10) / 10)[:, None, None]
    assert float(sum_rate(turned)) == 0  # out of phase nothing adds up
    assert float(sum_rate(torch.full((10, 1, 1), torch.inf))) == math.inf


def test_a_sum_costs_the_bits_that_keep_it_from_wrapping():
    """Two levels of ten devices take log2(11) bits: at 3.2 uses a parameter all fit from 16.4 dB on."""
    for snr_db, all_fit in ((16.3, False), (16.5, True)):
        bits = 64 * 200 * 0.5 * math.log2((1 + 10 ** (snr_db / 10)) / 10)
        assert (bits / math.log2(11) >= 4000) == all_fit
    levels, sent = best_levels(4000 * math.log2(10 * 255 + 1) + 1, 4000, 10, 2.5)
    assert sent == 4000
    assert 200 < levels <= 256
    assert best_levels(0.0, 4000, 10, 2.5)[1] == 0


def test_the_compute_and_forward_bound_is_exact_and_silent_below_its_threshold():
    given = heavy_tailed(10, 4000)
    none, some = (exchange(make_scheme("computation-rate"), given, snr_db) for snr_db in (9.0, 20.0))
    assert not none.update.any()
    torch.testing.assert_close(some.update, some.sent.reconstruction.mean(0))
    # 1.67 bits a use, 5.34 a parameter: about five levels, or fewer parameters with more
    arrived = (some.sent.reconstruction != 0).any(0)
    assert 0.7 < float(arrived.double().mean()) <= 1


def test_many_antennas_carry_more_together_than_in_turns():
    given, shares = heavy_tailed(10, 4000), []
    channel = make_channel(ChannelSettings(kind="fading", snr_db=0.0, antennas=8), PowerSettings())
    for name in ("tdma-vq", "capacity"):
        uplink = make_scheme(SchemeSettings(name=name, codeword_length=16))
        done = exchange(uplink, given, 0.0, channel=channel)
        shares.append(float(done.sent.reconstruction.ne(0).float().mean()))
    assert 0 < shares[0] < 0.7 * shares[1] < 0.7


def test_a_channel_that_tells_no_snr_is_refused():
    from dataclasses import dataclass, replace

    @dataclass(frozen=True)
    class Untold(Awgn):
        def sound(self, num_devices, num_uses, *, rng):
            csi = super().sound(num_devices, num_uses, rng=rng)
            return replace(csi, at_devices=replace(csi.at_devices, snr=None))

    with pytest.raises(ConfigError, match="sends by the devices' SNR, which this channel does not tell"):
        exchange(make_scheme("tdma-vq"), heavy_tailed(3, 400), 0.0, channel=Untold(0.0))


# ── behind a beam ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("antennas", [1, 8])
def test_fed_ota_has_the_noise_of_its_weakest_device(antennas):
    """All arrive at the level of the weakest behind the beam: the sum has the noise of one use over its square."""
    given = torch.randn(11, 20_000, generator=torch.Generator().manual_seed(0))
    settings = ChannelSettings(kind="fading", snr_db=5.0, snr_reference="transmit", antennas=antennas, block_slots=1000)
    channel = make_channel(settings, PowerSettings(control="beamforming", threshold=0.2))
    done = exchange(make_scheme("fed-ota"), given, 5.0, channel=channel)
    level = float(channel.sound(10, done.broadcast.num_uses, rng=rngs.generator(0, "fading", 0)).level[0])
    assert level > (1.0 if antennas == 8 else 0.2**0.5)
    noise = 10 / 64 * 10**-0.5 / level**2 / float(done.sent.agreed["scale"])
    error = done.update * done.output.num_active_hat - done.sent.reconstruction.sum(0)
    # 20,000 squares: a percent
    assert float(error.square().mean()) == pytest.approx(noise, rel=0.04)
    assert "every device's channel gain" in done.air.side_information


@pytest.mark.parametrize(
    ("name", "control", "same"), [("fed-ota", "beamforming", "baa"), ("ca-dsgd", "inversion", "a-dsgd")]
)
def test_a_scheme_brings_its_power_control_and_refuses_another(name, control, same, digits, quick):
    faded = {"dataset": digits, "uplink": name, "channel": "fading"}
    run = aircomp.simulate(quick.changed(rounds=1), **faded, **{"channel.antennas": 4})
    assert run.experiment.power.control == control
    with pytest.raises(
        ConfigError, match=f"'{name}' is '{same}' with power.control = '{control}', but .* 'phase' was given"
    ):
        aircomp.simulate(quick.changed(rounds=1), **faded, **{"power.control": "phase"})


def test_ca_dsgd_sends_what_a_dsgd_does_over_white_noise():
    given = heavy_tailed(4, 2000)
    both = [exchange(make_scheme(name), given, 10.0).update for name in ("a-dsgd", "ca-dsgd")]
    assert torch.equal(*both)


@pytest.mark.parametrize(("degrees", "floor"), [(10.0, 0.031), (20.0, 0.130), (30.0, 0.315)])
def test_uncoded_signals_have_the_floor_of_their_phase_errors(degrees, floor):
    """Without noise, as many numbers as uses, devices that do not agree: the relative error is e^(s²) − 1."""
    assert math.expm1(math.radians(degrees) ** 2) == pytest.approx(floor, rel=0.02)
    given = torch.randn(11, 200_000, generator=torch.Generator().manual_seed(0))
    settings = ChannelSettings(
        kind="fading", snr_db=200.0, rician_factor=1e6, block_slots=1, errors={"phase_deg": degrees}
    )
    channel = make_channel(settings, PowerSettings(control="phase"))
    uplink = make_scheme(SchemeSettings(name="baa", codeword_length=20), SchemeContext(block_uses=64))
    done = exchange(uplink, given, 0.0, channel=channel)
    gains = channel.sound(10, done.broadcast.num_uses, rng=rngs.generator(0, "fading", 0)).with_power
    kept = uplink._round(done.broadcast)
    heard = gains.of_slots(kept.carrier.air.slots, 20).sum(0).real.mean(1)  # what the pilot of every block tells
    weights = (heard / (10 * channel.gain_model.mean))[kept.carrier.air.rows, None].expand(-1, kept.carrier.per_slot)
    found = take(done.update, kept.chosen) * kept.carrier.numbers_of(weights)
    truth = take(done.sent.reconstruction.mean(0), kept.chosen)
    error = float((found - truth).square().sum() / truth.square().sum())
    # 31,250 phases, whose squares deviate by their mean times the root of two: .8 %
    assert error == pytest.approx(math.expm1(math.radians(degrees) ** 2), rel=0.02)


# ── a composite pilot ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("antennas", "correlation"), [(8, 0.0), (64, 0.0), (8, 0.5)])
def test_blind_analog_has_its_floor(antennas, correlation):
    """Without noise, as many numbers as uses: the sum has the relative error (K/N_r)/(1 + (K − 1)r)."""
    rng = torch.Generator().manual_seed(0)
    common, own = torch.randn(1, 40_000, generator=rng), torch.randn(11, 40_000, generator=rng)
    given = correlation**0.5 * common + (1 - correlation) ** 0.5 * own
    settings = ChannelSettings(kind="fading", snr_db=200.0, antennas=antennas, block_slots=1)
    channel = make_channel(settings, PowerSettings())
    uplink = make_scheme(SchemeSettings(name="blind-analog", codeword_length=20), SchemeContext(block_uses=64))
    done = exchange(uplink, given, 0.0, channel=channel)
    gains = channel.sound(10, done.broadcast.num_uses, rng=rngs.generator(0, "fading", 0)).gains
    kept = uplink.link._round(done.broadcast)
    weights = gains.of_slots(kept.carrier.air.slots, 20).sum(0).abs().square().mean(1)  # of every slot, together
    each = weights[kept.carrier.air.rows, None].expand(-1, kept.carrier.per_slot)
    total = take(done.update, kept.chosen) * kept.carrier.numbers_of(each)
    truth = take(done.sent.reconstruction.sum(0), kept.chosen)
    error = float((total - truth).square().sum() / truth.square().sum())
    # 625 blocks, each with a deviation of two fifths, or where devices agree of about one and a half
    assert error == pytest.approx(10 / antennas / (1 + 9 * correlation), rel=0.15 if correlation else 0.05)


def test_blind_analog_needs_a_pilot_in_every_block():
    channel = make_channel(ChannelSettings(kind="fading", block_slots=10), PowerSettings())
    with pytest.raises(ConfigError, match="4 pilots leave one without; expected more"):
        exchange(make_scheme("blind-analog"), heavy_tailed(3, 2000), 0.0, channel=channel)


@pytest.mark.parametrize("slots", [100, 101, 149, 151])
def test_every_block_has_a_pilot_also_one_that_is_cut_short(slots):
    air = plan_air(slots, 64, pilots=None, block_uses=50 * 64)
    assert (air.places // 50).unique().tolist() == list(range(-(-slots // 50)))
    assert len(air.places.unique()) == len(air.places) <= 5


# ── votes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def split_votes(plus, devices, params):
    signs = torch.ones(devices + 1, params)
    signs[1 + plus :] = -1
    return signs


@pytest.mark.parametrize("snr_db", [-5.0, 5.0])
def test_obda_errs_as_the_gaussian_tail_says(snr_db):
    """Six of ten against four: a sum of 2 amplitudes behind noise of variance 10/(lΓ), at l/d uses a parameter."""
    uplink = make_scheme("obda")
    done = exchange(uplink, split_votes(6, 10, 40_000), snr_db)
    per_use = 10 ** (-snr_db / 10) * 10 / 64
    expected = 0.5 * math.erfc(2 * uplink._round(done.broadcast).amplitude / math.sqrt(2 * per_use))
    wrong = float((done.output.signs < 0).double().mean())
    # 40,000 votes: .25 % of standard deviation at most
    assert wrong == pytest.approx(expected, abs=0.01)
    assert done.sent.signal.slot_energy().mean() == pytest.approx(1)


@pytest.mark.parametrize(("antennas", "floor"), [(1, 0.400), (8, 0.213), (64, 0.011)])
def test_fsk_errs_without_noise_as_the_incomplete_beta_function_says(antennas, floor):
    """Rayleigh gains, six against four: radio.md's floors."""
    assert special.betainc(antennas, antennas, 0.4) == pytest.approx(floor, abs=0.001)
    settings = ChannelSettings(kind="fading", snr_db=200.0, antennas=antennas, block_slots=1)
    channel = make_channel(settings, PowerSettings())
    given = split_votes(6, 10, 20_000)
    done = exchange(make_scheme("fsk-mv"), given, 0.0, channel=channel)
    voted = done.sent.reconstruction.any(0)
    wrong = float((done.output.signs[voted] < 0).double().mean())
    # a slot's votes share their gains, 1,000 slots of 16 votes: 1.5 % of standard deviation
    assert wrong == pytest.approx(floor, abs=0.04)


@pytest.mark.parametrize("snr_db", [0.0, 10.0])
def test_fsk_errs_behind_noise_as_tones_of_random_phase_do(snr_db):
    uplink = make_scheme("fsk-mv")
    done = exchange(uplink, split_votes(6, 10, 20_000), snr_db)
    voted = done.sent.reconstruction.any(0)
    wrong = float((done.output.signs[voted] < 0).double().mean())
    energy, noise = uplink._round(done.broadcast).amplitude ** 2, 10 ** (-snr_db / 10) * 10 / 64
    expected = (4 * energy + 2 * noise) / (
        10 * energy + 4 * noise
    )  # exact for Gaussian sums; ten phases are close to one
    assert wrong == pytest.approx(expected, abs=0.03)
    assert float(voted.float().mean()) == pytest.approx(0.8)  # four uses a parameter


def test_a_vote_steps_by_the_base_stations_own_update_and_decays():
    given = heavy_tailed(5, 2000)
    uplink = make_scheme(SchemeSettings(name="obda", rate=2.0, decay=0.5))
    first = exchange(uplink, given, 20.0)
    second = exchange(uplink, given, 20.0, memory=first.memory)
    size = float(given[0].abs().mean())
    assert float(first.update.abs().max()) == pytest.approx(2 * size, rel=1e-5)
    assert float(second.update.abs().max()) == pytest.approx(size, rel=1e-5)


def test_votes_choose_their_rule_themselves_and_refuse_others(digits, quick):
    run = aircomp.simulate(quick.changed(rounds=1), dataset=digits, uplink="obda")
    assert run.experiment.aggregate.rule == "sign-vote"
    assert "num_active_hat" not in run.metrics[0]
    with pytest.raises(ConfigError, match="'trimmed-mean' was given, but this uplink offers a vote"):
        aircomp.simulate(quick.changed(rounds=1), dataset=digits, uplink="obda", aggregator="trimmed-mean")


# ── energies ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("antennas", "snr_db"), [(1, 200.0), (8, 0.0)])
def test_reed_has_the_error_of_its_closed_form(antennas, snr_db):
    """In Rayleigh fading: [(S₊ + N₀)² + (S₋ + N₀)²]/(N_r (S₊ − S₋)²)."""
    given = torch.randn(6, 40_000, generator=torch.Generator().manual_seed(0))
    settings = ChannelSettings(kind="fading", snr_db=snr_db, snr_reference="transmit", antennas=antennas, block_slots=1)
    done = exchange(make_scheme("reed"), given, snr_db, channel=make_channel(settings, PowerSettings()))
    sent = done.sent.reconstruction[:, done.sent.reconstruction.any(0)].double()
    noise = 2 * 5 / 64 * 10 ** (-snr_db / 10) / float(done.sent.agreed["scale"])
    plus, minus = sent.clamp(min=0).sum(0), -sent.clamp(max=0).sum(0)
    expected = float(((plus + noise).square() + (minus + noise).square()).mean()) / antennas
    total = (done.update * done.output.num_active_hat)[done.sent.reconstruction.any(0)]
    # 31,000 squares of differences of exponential variables, kurtosis about 10: 2 % of standard deviation
    assert float((total - sent.sum(0)).square().mean()) == pytest.approx(expected, rel=0.06)


def test_reed_takes_the_number_of_devices_from_the_energy_of_pilots():
    given = heavy_tailed(7, 4000)
    hats = [
        exchange(make_scheme(SchemeSettings(name="reed", pilots=100)), given, 0.0, seed=seed).output.num_active_hat
        for seed in range(4)
    ]
    # 16 numbers in each of 100 pilots: a fortieth of the number and its noise, and half of that for the mean of four
    assert sum(hats) / 4 == pytest.approx(7, rel=0.06)


# ── sparse sums ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_sparse_vectors_are_recovered_from_half_as_many_sums(rng):
    from aircomp.decoders.sparse import recover

    rows = torch.linalg.qr(torch.randn(512, 256, generator=rng))[0].T
    sparse = torch.randn(20, 512, generator=rng) * (torch.rand(20, 512, generator=rng) < 0.08)
    found = recover(sparse @ rows.T, rows, 0.0)
    assert float((found - sparse).square().sum() / sparse.square().sum()) < 1e-3
    noisy = recover(sparse @ rows.T + 0.05 * torch.randn(20, 256, generator=rng), rows, 0.05**2)
    # an oracle of the places has .08·σ²/δ of error an entry at best; thresholds cost a factor of a few
    assert float((noisy - sparse).square().mean()) < 10 * 0.08 * 0.05**2 / 0.5


def test_every_device_of_a_dsgd_spends_the_same():
    given = heavy_tailed(4, 2000)
    given[2] *= 100
    air = exchange(make_scheme("a-dsgd"), given, 10.0).air
    torch.testing.assert_close(air.energy, torch.full((4,), 100.0, dtype=torch.float64), rtol=1e-5, atol=0)


def test_a_dsgd_recovers_a_shared_sparse_update_from_fewer_uses_than_parameters():
    base = heavy_tailed(0, 4000)[0] ** 3
    given = base + 0.01 * torch.randn(5, 4000, generator=torch.Generator().manual_seed(1))
    uplink = make_scheme(SchemeSettings(name="a-dsgd", codeword_length=10))
    done = exchange(uplink, given, 20.0)
    assert done.air.channel_uses == 2000
    truth = given[1:].mean(0)
    assert float((done.update - truth).square().sum() / truth.square().sum()) < 0.1
