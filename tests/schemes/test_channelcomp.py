"""ChannelComp: constellations by types, their posterior against all inputs, and who is refused."""

import itertools

import pytest
import torch

import aircomp
from aircomp.channel.awgn import Awgn
from aircomp.decoders.types import count_levels, estimate_function, estimate_mean, estimate_types, types
from aircomp.encode.constellation import FUNCTIONS, constellation
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.channelcomp import ChannelComp
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings
from helpers.constellations import least_distance


def all_inputs(levels, devices):
    return torch.tensor(list(itertools.product(range(levels), repeat=devices)))


def type_of(inputs, levels):
    return torch.stack([(inputs == level).sum(dim=1) for level in range(levels)], dim=1)


def exchange(levels, snr_db, *, rule="mean", readout="integers", number=6, params=2000, **options):
    settings = SchemeSettings(name="channelcomp", levels=levels, **options)
    given = torch.randn(number + 1, params, generator=torch.Generator().manual_seed(0))
    link = Link(make_scheme(settings), Awgn(snr_db, "transmit"), rule, readout=readout)
    return communicate(link, given[0], given[1:], {}, 0)


@pytest.mark.parametrize(("levels", "devices"), [(2, 5), (3, 4), (4, 3)])
def test_types_are_those_of_all_inputs_and_their_sums_as_far_apart(levels, devices):
    inputs, points = all_inputs(levels, devices), constellation(levels, devices)
    found = {tuple(t) for t in type_of(inputs, levels).tolist()}
    assert {tuple(t) for t in types(levels, devices).tolist()} == found
    sums = points[inputs].sum(dim=1)
    apart = torch.cdist(sums.double(), sums.double())
    others = (type_of(inputs, levels)[:, None] != type_of(inputs, levels)).any(dim=2)
    assert float(apart[others].min()) == pytest.approx(float(least_distance(points, devices)), rel=1e-5)
    assert float(apart[~others].max()) < 1e-5


def test_two_and_three_levels_keep_the_distance_of_two_devices_and_four_lose_it():
    for levels, side in ((2, 2.0), (3, 3**0.5)):
        assert float(least_distance(constellation(levels, 10), 10)) == pytest.approx(side, rel=1e-5)
    few, many = (float(least_distance(constellation(4, k), k)) for k in (4, 10))
    assert 0.61 < many < few < 1.0  # the digits 0, 1, i and 11 + 11i have .15 for ten devices


@pytest.mark.parametrize(("levels", "noise_var"), [(2, 0.5), (3, 0.3), (4, 0.05)])
def test_the_posterior_by_types_is_that_of_all_inputs(levels, noise_var, rng):
    devices, points = 4, constellation(levels, 4)
    prior = torch.softmax(torch.randn(levels, generator=rng), 0)
    inputs = all_inputs(levels, devices)
    sent = points[inputs[torch.randint(len(inputs), (50,), generator=rng)]].sum(dim=1)
    heard = sent + noise_var**0.5 * torch.randn(sent.shape, generator=rng)
    score = prior.log()[inputs].sum(dim=1) - torch.cdist(heard, points[inputs].sum(dim=1)) ** 2 / (2 * noise_var)
    truth = score.softmax(dim=1) @ type_of(inputs, levels).float()
    counts, mean = estimate_types(heard, noise_var, points, prior, types(levels, devices))
    torch.testing.assert_close(mean, truth, rtol=1e-3, atol=1e-3)
    assert (counts.sum(dim=1) == devices).all()


def test_every_sum_is_counted_for_its_own_number_of_devices(rng):
    points, prior = constellation(3, 6), torch.tensor([0.2, 0.5, 0.3])
    devices = torch.tensor([5, 0, 3, 5])
    inputs = torch.multinomial(prior.expand(4, -1), 5, replacement=True, generator=rng)
    sent = torch.stack([type_of(row[None, :k], 3)[0] for row, k in zip(inputs, devices.tolist(), strict=True)])
    counts, soft = count_levels(sent.float() @ points, 1e-3, points, prior, devices)
    assert torch.equal(counts, sent)
    torch.testing.assert_close(soft, sent.float(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("levels", [2, 3, 4])
@pytest.mark.parametrize(
    ("rule", "readout"), [("mean", "auto"), ("mean", "integers"), ("coordinate-median", "integers")]
)
def test_without_noise_every_rule_is_exact(levels, rule, readout):
    done = exchange(levels, float("inf"), rule=rule, readout=readout)
    sent = done.sent.reconstruction.sort(dim=0).values
    truth = sent.mean(0) if rule == "mean" else sent[2:4].mean(0)
    torch.testing.assert_close(done.update, truth, rtol=1e-5, atol=1e-6)


def test_three_levels_err_as_the_hexagon_of_a_lattice_says():
    """Nearest points of a triangular lattice: 1 − P = (6/π) ∫ exp(−ρ² / (2σ² cos²θ)) dθ over 0 to π/6, ρ half a side.

    The prior moves borders, so levels are equally frequent, and types near the middle of it are looked at.
    """
    rng, possible, points = torch.Generator().manual_seed(1), types(3, 30), constellation(3, 30)
    middle = possible[(possible - 10).abs().amax(dim=1) <= 1]
    sent = middle[torch.randint(len(middle), (20_000,), generator=rng)]
    noise_var = 0.12
    y = sent.float() @ points + noise_var**0.5 * torch.randn(20_000, 2, generator=rng)
    counts, _ = estimate_types(y, noise_var, points, torch.ones(3) / 3, possible)
    angle = torch.linspace(0, torch.pi / 6, 10_001, dtype=torch.float64)
    truth = 6 / torch.pi * torch.trapezoid(torch.exp(-0.75 / (2 * noise_var * angle.cos() ** 2)), angle)
    # 700 errors: 4 %, and 3 % for the prior
    assert float((counts != sent).any(dim=1).double().mean()) == pytest.approx(float(truth), rel=0.12)


def test_more_devices_than_the_constellation_are_refused_before_training():
    few = {"uplink": "channelcomp", "rounds": 1, "uplink.devices": 12}
    with pytest.raises(
        ConfigError, match="13 devices may send at once, but uplink = 'channelcomp' is for 12 at most; raise"
    ):
        aircomp.simulate("digits", **few)
    with pytest.raises(ConfigError, match="40 devices may send at once"):
        aircomp.simulate("digits", uplink="channelcomp", **{"participation.kind": "bernoulli"})
    with pytest.raises(ConfigError, match=r"4 levels of so many devices have 1140 types, .* at most 16 devices"):
        make_scheme(SchemeSettings(name="channelcomp", levels=4, devices=17))
    with pytest.raises(ConfigError, match="7 devices may send at once"):
        exchange(3, 0.0, number=7, devices=6)


@pytest.mark.parametrize(("function", "levels"), [("mean", 5), ("median", 4), ("maximum", 3)])
def test_a_function_is_exact_without_noise_and_near_with_some(function, levels):
    for snr_db, most in ((float("inf"), 1e-8), (15.0, 0.1)):
        done = exchange(levels, snr_db, number=6, devices=6, function=function)
        sent = done.sent.reconstruction.sort(dim=0).values
        truth = {"mean": sent.mean(0), "median": sent[2:4].mean(0), "maximum": sent[-1]}[function]
        assert float((done.update - truth).square().sum() / truth.square().sum()) < most


def test_the_mean_takes_one_use_and_more_levels_and_devices_than_types_can_be_listed():
    scheme = make_scheme(SchemeSettings(name="channelcomp", levels=8, function="mean"))
    assert isinstance(scheme, ChannelComp)
    assert scheme.points.shape[1] == 1
    done = exchange(8, float("inf"), number=16, function="mean")
    torch.testing.assert_close(done.update, done.sent.reconstruction.mean(dim=0), rtol=1e-5, atol=1e-5)


def test_the_posterior_of_a_mean_is_that_of_all_types(rng):
    points, prior = constellation(4, 5, "mean"), torch.softmax(torch.randn(4, generator=rng), 0)
    devices = torch.tensor([5, 0, 3]).repeat(40)
    heard = 3 * torch.randn(120, 1, generator=rng)
    expected = estimate_function(heard, 0.4, points, prior, devices, FUNCTIONS["mean"])
    torch.testing.assert_close(estimate_mean(heard, 0.4, points, prior, devices), expected, rtol=1e-4, atol=1e-5)


def test_a_scheme_for_one_function_serves_no_other_rule():
    with pytest.raises(ConfigError, match="'coordinate-median' was given, but this uplink offers a mean"):
        exchange(3, 10.0, rule="coordinate-median", function="median")
