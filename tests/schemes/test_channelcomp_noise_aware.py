"""Noise-aware ChannelComp: designs against brute force over all inputs, and rounds that know their noise."""

import itertools
import math

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.encode.constellation import constellation
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.schemes.channelcomp_noise_aware import confusions, descend, expected_error, points_for
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings
from aircomp.testing import check_uplink

LEVELS = torch.linspace(-1, 1, 3, dtype=torch.float64)
PRIOR = torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64)
OF_INPUTS = {"mean": lambda values: values.mean(dim=1), "maximum": lambda values: values.amax(dim=1)}


def normal(points):
    """Mean zero and mean energy one, as sent."""
    points = torch.nn.functional.pad(points.double(), (0, 2 - points.shape[1]))
    points = points - PRIOR @ points
    return points / (PRIOR @ points.square().sum(dim=1)).sqrt()


def plain_error(points, noise_var, function, devices=2, places=41):
    """The variance of the function given what is heard: all inputs, each by itself, and a grid over what is heard."""
    inputs = torch.tensor(list(itertools.product(range(3), repeat=devices)))
    shares, sums = PRIOR[inputs].prod(dim=1), points[inputs].sum(dim=1)
    values = OF_INPUTS[function](LEVELS[inputs])
    reach = float(sums.abs().max()) + 5 * noise_var**0.5
    line = torch.linspace(-reach, reach, places, dtype=torch.float64)
    cell = float(line[1] - line[0]) ** 2
    heard = torch.cartesian_prod(line, line)
    density = shares * (-torch.cdist(heard, sums).square() / (2 * noise_var)).exp() / (2 * math.pi * noise_var)
    told = (density @ values).square() / density.sum(dim=1).clamp(min=1e-300)
    return float(shares @ values.square() - told.sum() * cell)


def rounds(name, snr_db, *, number=2, senders=10, params=4000, **options):
    """The same updates sent several times."""
    given = torch.randn(senders + 1, params, generator=torch.Generator().manual_seed(0))
    link, memory, found = Link(make_scheme(SchemeSettings(name=name, **options)), Awgn(snr_db, "transmit")), {}, []
    for index in range(number):
        found.append(communicate(link, given[0], given[1:], memory, index))
        memory = found[-1].memory
    return found


def error(done, function):
    sent = done.sent.reconstruction.sort(dim=0).values
    truth = {"mean": sent.mean(dim=0), "maximum": sent[-1], "median": sent[4:6].mean(dim=0)}[function]
    return float((done.update - truth).square().mean())


@pytest.mark.parametrize("function", ["type", "mean"])
def test_it_passes_as_every_scheme_does(function):
    check_uplink(lambda: make_scheme(SchemeSettings(name="channelcomp-noise-aware", function=function)))


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("function", "noise_db", "most"),
    [("mean", 0, 1.01), ("mean", -8, 1.03), ("maximum", 0, 1.2), ("maximum", -5, 1.04), ("maximum", -8, 1.03)],
)
def test_designs_err_little_more_than_the_best_of_all_constellations(function, noise_db, most):
    """Three points with mean and energy fixed are one point beside two, but for turns; the bound is loose in much noise."""
    noise_var = 10 ** (noise_db / 10)
    beside = itertools.product(torch.linspace(-1, 1, 17).tolist(), torch.linspace(0, 2, 17).tolist())
    best = min(
        plain_error(normal(torch.tensor([[-1.0, 0.0], [x, y], [1.0, 0.0]])), noise_var, function) for x, y in beside
    )
    known = constellation(3, 2, function)
    found = points_for((8, 16, 8), 2, 2, function, noise_db)
    reached = plain_error(normal(known if found is None else found), noise_var, function)
    assert reached <= most * best
    assert reached <= plain_error(normal(known), noise_var, function)


@pytest.mark.parametrize("function", OF_INPUTS)
@pytest.mark.parametrize("noise_var", [0.2, 1.0])
def test_no_constellation_errs_by_more_than_the_bound_and_draws_tell_its_error(function, noise_var, rng):
    points = normal(torch.randn(3, 2, generator=rng, dtype=torch.float64))
    apart, costs = confusions(PRIOR, 2, function)
    bound = float(costs @ (-(apart @ points).square().sum(dim=1) / (8 * noise_var)).exp())
    exact = plain_error(points, noise_var, function, places=81)
    assert exact < bound < 5 * exact + 0.2
    # 2,048 draws of a variance that is 0.5 at most
    assert expected_error(points, noise_var, PRIOR, 2, function) == pytest.approx(exact, rel=0.1)


def test_what_pairs_cost_is_that_of_all_pairs_of_types():
    apart, costs = confusions(PRIOR, 2, "maximum")
    probability = {}
    for one in itertools.product(range(3), repeat=2):
        of_type = tuple(one.count(level) for level in range(3))
        probability[of_type] = probability.get(of_type, 0.0) + float(PRIOR[list(one)].prod())
    largest = {t: max(float(LEVELS[level]) for level in range(3) if t[level]) for t in probability}
    expected = {}
    for one, other in itertools.combinations(sorted(probability, reverse=True), 2):
        cost = (largest[one] - largest[other]) ** 2 * math.sqrt(probability[one] * probability[other]) / 2
        moved = tuple(a - b for a, b in zip(one, other, strict=True))
        moved = max(moved, tuple(-m for m in moved))
        expected[moved] = expected.get(moved, 0.0) + cost
    found = {max(tuple(d), tuple(-m for m in d)): c for d, c in zip(apart.int().tolist(), costs.tolist(), strict=True)}
    assert found == pytest.approx({d: c for d, c in expected.items() if c > 0})


def test_descent_ends_at_the_same_points_in_every_call_and_lowers_the_bound():
    known = constellation(3, 4, "maximum").double()
    one, other = (descend(known, 0.3, PRIOR, 4, "maximum") for _ in range(2))
    assert torch.equal(one, other)
    apart, costs = confusions(PRIOR, 4, "maximum")
    before, after = (
        float(costs @ (-(apart @ each).square().sum(dim=1) / (8 * 0.3)).exp()) for each in (normal(known), one)
    )
    assert after < 0.9 * before


@pytest.mark.parametrize(
    ("function", "snr_db", "share"), [("maximum", 10.0, 0.5), ("median", 10.0, 0.85), ("mean", 16.0, 0.6)]
)
def test_the_round_after_the_noise_is_known_errs_less_than_channelcomp(function, snr_db, share):
    options = {"levels": 4, "function": function}
    first, second = rounds("channelcomp-noise-aware", snr_db, **options)
    plain = rounds("channelcomp", snr_db, **options)
    assert torch.equal(first.update, plain[0].update)
    assert "points" not in first.broadcast.values
    assert second.broadcast.values["points"].shape == (4, 2)
    assert error(second, function) < share * error(plain[1], function)


@pytest.mark.parametrize("options", [{"codeword_length": 32}, {"levels": 2}, {"function": "mean"}])
def test_in_much_noise_or_without_room_for_a_plane_the_mean_has_channelcomps_line(options):
    snr_db = 0.0 if options == {"function": "mean"} else 20.0
    options = {"levels": 4, "function": "mean"} | options
    mine, plain = (rounds(name, snr_db, **options)[1] for name in ("channelcomp-noise-aware", "channelcomp"))
    assert "points" not in mine.broadcast.values
    assert torch.equal(mine.update, plain.update)


@pytest.mark.parametrize("function", ["mean", "median", "maximum"])
def test_without_noise_it_is_exact_in_every_round(function):
    for done in rounds("channelcomp-noise-aware", float("inf"), senders=5, params=1000, function=function):
        sent = done.sent.reconstruction.sort(dim=0).values
        truth = {"mean": sent.mean(dim=0), "median": sent[2], "maximum": sent[-1]}[function]
        torch.testing.assert_close(done.update, truth, rtol=1e-4, atol=1e-5)


def test_more_devices_or_types_than_designs_are_made_for_are_refused():
    with pytest.raises(
        ConfigError, match="7 devices may send at once, but uplink = 'channelcomp-noise-aware' is for 6"
    ):
        rounds("channelcomp-noise-aware", 0.0, senders=7, devices=6)
    with pytest.raises(ConfigError, match=r"4 levels of so many devices have 1140 types, .* at most 16 devices"):
        make_scheme(SchemeSettings(name="channelcomp-noise-aware", levels=4, devices=17))
