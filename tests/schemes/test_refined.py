"""Analog transmission refined by lattices; the conformance suite has what it shares with others."""

import math

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.measure.metrics import vector_nmse
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.outputs import aggregate_output
from aircomp.schemes.refined.fibres import (
    AT_FIRST,
    FEATURES,
    fibre_means,
    learn_trust,
    spread,
    water_level,
)
from aircomp.schemes.refined.plan import Expected, choose_plan, next_noises
from aircomp.schemes.refined.readout import fit_prior, posterior
from aircomp.schemes.registry import make_scheme, scheme_class

SHAPES = ((20, 10, 3, 3), (20,), (10, 18))
SIZE = 1800 + 20 + 180


def sizes(seed=0):
    """Return deviations of parameters: a factor for every row and column of their tensors."""
    rng = torch.Generator().manual_seed(seed)
    found = []
    for shape, loud in zip(SHAPES, (0.1, 1.0, 0.5), strict=True):
        matrix = (
            torch.randn(shape[0], 1, generator=rng).exp() * torch.randn(1, math.prod(shape[1:]), generator=rng).exp()
        )
        found.append(loud * matrix.flatten())
    return torch.cat(found)


def messages(devices=10, longer=1.0, seed=0):
    rng = torch.Generator().manual_seed(seed)
    given = (torch.randn(1, SIZE, generator=rng) + 2 * torch.randn(devices + 1, SIZE, generator=rng)) * sizes()
    given[1:] *= longer
    return given


def rounds(snr_db, name="refined-analog", number=3, devices=10, context=None, given=None, **settings):
    """Return exchanges of a link, with other messages of the same law in every round unless they are given."""
    context = context or SchemeContext(shapes=SHAPES)
    scheme = make_scheme(scheme_class(name).settings_class(name=name, **settings), context)
    link, memory, done = Link(scheme, Awgn(snr_db, "transmit")), {}, []
    for index in range(number):
        sent = messages(devices, seed=index) if given is None else given
        done.append(communicate(link, sent[0], sent[1:], memory, index))
        memory = done[-1].memory
    return done


def error(exchange, readout="unbiased"):
    update = aggregate_output(exchange.output, "mean", readout=readout)
    return vector_nmse(exchange.messages.mean(0), update)


def test_the_first_round_has_no_modulo_stage():
    assert rounds(20.0, number=1)[0].broadcast.values["numbers"].tolist() == [SIZE]


@pytest.mark.parametrize("snr_db", [-10.0, 0.0])
def test_in_much_noise_there_is_no_modulo_stage_and_gains_of_fibres_win(snr_db):
    ours, theirs = rounds(snr_db)[-1], rounds(snr_db, "analog")[-1]
    assert ours.broadcast.values["numbers"].tolist() == [SIZE]
    assert error(ours) < 0.85 * error(theirs)


@pytest.mark.parametrize(("snr_db", "share"), [(15.0, 0.6), (20.0, 0.15), (30.0, 0.01)])
def test_in_little_noise_modulo_stages_leave_a_fraction_of_the_error(snr_db, share):
    ours, theirs = rounds(snr_db)[-1], rounds(snr_db, "analog")[-1]
    assert len(ours.broadcast.values["numbers"]) > 1
    assert error(ours) < share * error(theirs)


def test_every_stage_has_its_share_and_all_of_them_the_nominal_energy():
    done = rounds(20.0)[-1]
    assert float(done.air.energy.mean()) == pytest.approx(done.air.nominal_energy, rel=1e-5)
    assert torch.equal(done.sent.reconstruction, done.messages)


def test_devices_are_told_a_few_hundred_numbers():
    values = rounds(20.0)[-1].broadcast.values
    assert set(values) == {"factors", "level", "numbers", "shares", "cells"}
    assert values["factors"].shape == (1 + 20 + 10 + 9 + 1 + 1 + 10 + 18,)  # a mean of each tensor, and its fibres
    assert values["factors"].dtype == torch.float32


def test_with_fewer_uses_than_parameters_the_most_energetic_are_sent():
    done = rounds(10.0, codeword_length=8)[-1]
    sent = done.sent.reconstruction.any(dim=0)
    assert 0.3 * SIZE < int(sent.sum()) < 0.45 * SIZE
    energy = done.messages.square().mean(0)
    assert float(energy[sent].sum() / energy.sum()) > 0.9
    others = rounds(10.0, "analog", codeword_length=8)[-1]
    assert error(done) < 0.5 * error(others)


def test_the_soft_readout_errs_less_and_the_unbiased_one_is_not_shrunk():
    done = rounds(-5.0)[-1]
    assert error(done, "soft") < 0.8 * error(done, "unbiased")
    truth = done.messages.mean(0)
    unbiased, soft = (aggregate_output(done.output, "mean", readout=name) for name in ("unbiased", "soft"))
    # the noise of a projection is the noise over the length of the truth: NMSE over SIZE/kurtosis independent entries
    assert float(unbiased @ truth / (truth @ truth)) == pytest.approx(1.0, abs=0.1)
    assert float(soft @ truth / (truth @ truth)) < 0.95


def test_without_noise_the_mean_is_exact():
    for done in rounds(math.inf):
        torch.testing.assert_close(done.update, done.messages.mean(0), atol=2e-4, rtol=1e-3)


def test_in_fading_there_is_no_modulo_stage():
    memory = rounds(20.0)[-1].memory
    scheme = make_scheme("refined-analog", SchemeContext(shapes=SHAPES, block_uses=640))
    announced, _ = scheme.broadcast(messages()[0], memory, rng=torch.Generator().manual_seed(0))
    assert announced.values["numbers"].tolist() == [SIZE]


def test_noise_that_is_ten_times_as_strong_as_remembered_switches_the_modulo_stages_off():
    memory = rounds(25.0)[-1].memory
    given = messages(seed=7)
    scheme = make_scheme("refined-analog", SchemeContext(shapes=SHAPES))
    done = communicate(Link(scheme, Awgn(15.0, "transmit")), given[0], given[1:], memory, 0)
    assert done.output.diagnostics["stages"] == 0
    analog = make_scheme("analog", SchemeContext(shapes=SHAPES))
    theirs = communicate(Link(analog, Awgn(15.0, "transmit")), given[0], given[1:], {}, 0)
    # two thirds of the energy went into stages that nobody can unwrap
    assert error(done) < 4 * error(theirs)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("snr_db", [0.0, 20.0])
def test_few_devices_are_served(devices, snr_db):
    ours, theirs = (rounds(snr_db, name, devices=devices)[-1] for name in ("refined-analog", "analog"))
    assert error(ours) < 1.01 * error(theirs)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_models_of_few_parameters_are_served_as_by_analog(size):
    given = messages()[:, -size:].contiguous()
    context = SchemeContext(shapes=((size,),))
    ours = rounds(20.0, context=context, given=given)[-1]
    theirs = rounds(20.0, "analog", context=context, given=given)[-1]
    truth = given[1:].mean(0)
    assert vector_nmse(truth, ours.update) < 1.5 * vector_nmse(truth, theirs.update) + 1e-6


def test_updates_of_zero_give_zero_and_leave_the_memory():
    before = rounds(20.0)[-1].memory
    scheme = make_scheme("refined-analog", SchemeContext(shapes=SHAPES))
    nothing = torch.zeros(11, SIZE)
    done = communicate(Link(scheme, Awgn(20.0, "transmit")), nothing[0], nothing[1:], before, 0)
    assert not done.update.any()
    assert done.memory.keys() == before.keys()


def test_a_memory_of_another_model_is_not_used():
    memory = rounds(20.0)[-1].memory
    scheme = make_scheme("refined-analog", SchemeContext())
    given = messages()[:, :500].contiguous()
    done = communicate(Link(scheme, Awgn(0.0, "transmit")), given[0], given[1:], memory, 0)
    assert done.update.isfinite().all()


def test_the_base_station_joins_the_mean():
    context = SchemeContext(shapes=SHAPES, include_base_station=True)
    given = messages()
    done = rounds(60.0, context=context, given=given)[-1]
    torch.testing.assert_close(done.update, given.mean(0), atol=0.01, rtol=0.01)


def test_factors_of_a_rank_one_tensor_tell_its_variances():
    rows, columns = torch.tensor([1.0, 4.0, 16.0]), torch.tensor([1.0, 9.0, 2.0, 5.0])
    variances = (rows[:, None] * columns).flatten()
    factors = fibre_means(variances, ((3, 4),)).sum(dim=1)
    assert len(factors) == 1 + 3 + 4  # the mean, and all rows and columns
    found = spread(factors[:, None], ((3, 4),))[:, 0]
    # fibres are taken together with an entry of the mean, so they are nearer to it than the true ones
    assert float(torch.corrcoef(torch.stack([found, variances.double().log()]))[0, 1]) > 0.99


def test_trust_moves_towards_features_that_rounds_bear_out():
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(5000, FEATURES, generator=rng, dtype=torch.float64)
    energies = (1.0 * features[:, 1]).exp() * torch.randn(5000, generator=rng, dtype=torch.float64).square()
    trust = torch.tensor(AT_FIRST, dtype=torch.float64)
    found = learn_trust(trust, features, energies, torch.zeros(5000))
    # the gain that is best for variance exp(f) is exp(-f / 4): weight one
    assert float(found[1]) == pytest.approx(1.0, abs=0.25)
    assert float(found[[0, 2, 3, 4, 5, 6, 7]].abs().max()) < 0.25


def test_noise_alone_leaves_the_trust():
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(5000, FEATURES, generator=rng, dtype=torch.float64)
    energies = torch.randn(5000, generator=rng, dtype=torch.float64).square() - 1 + 0.02
    trust = torch.tensor(AT_FIRST, dtype=torch.float64)
    found = learn_trust(trust, features, energies, torch.ones(5000))
    assert float((found - trust).abs().max()) < 0.25


def test_a_feature_is_trusted_neither_against_its_sign_nor_more_than_wholly():
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(500, FEATURES, generator=rng, dtype=torch.float64)
    energies = (4 * features[:, 1] - 2 * features[:, 2]).exp()
    trust = torch.tensor(AT_FIRST, dtype=torch.float64)
    for _ in range(10):
        trust = learn_trust(trust, features, energies, torch.zeros(500))
    assert trust[1] == 1.0
    assert trust[2] == 0.0


def test_rounds_whose_noise_differs_widen_what_is_expected_of_the_next_one():
    def width(*noises):
        found = next_noises(torch.tensor(noises, dtype=torch.float64))
        return float(found.max() / found.min())

    assert width(1.0, 1.0) > width(*[1.0] * 8) > 1.0
    assert width(0.6, 1.4, 0.7, 1.3) > width(1.0, 1.0, 1.0, 1.0)
    middle = next_noises(torch.tensor([2.0, 8.0], dtype=torch.float64))[2]
    assert float(middle) == pytest.approx(4.0)


def test_tensors_that_do_not_add_up_to_the_update_are_refused():
    with pytest.raises(ConfigError, match="add up to 2,000 parameters, the update has 2,010"):
        Link("refined-analog", Awgn(10.0), tensors=SHAPES).send(torch.randn(4, SIZE + 10))


def test_a_level_leaves_the_least_error_of_posterior_means():
    sizes = torch.randn(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64).exp()
    signal = 2.0

    def left(level):
        energies = (sizes - level).clamp(min=0)
        return float((sizes.square() / (1 + signal * energies / energies.mean())).sum())

    level = water_level(sizes, signal)
    assert level > 0
    assert all(left(level) < left(factor * level) for factor in (0.0, 0.8, 1.2))
    assert water_level(sizes, 1e6) < 1e-5


def test_only_the_soft_readout_has_a_level():
    for readout, has in (("auto", False), ("soft", True)):
        done = rounds(-5.0, context=SchemeContext(shapes=SHAPES, readout=readout))[-1]
        assert (float(done.broadcast.values["level"]) > 0) == has


def test_a_round_of_which_noise_hides_everything_is_followed_by_another():
    for done in rounds(-40.0, context=SchemeContext(shapes=SHAPES, readout="soft")):
        assert done.update.isfinite().all()


def plan_at(snr_db, devices=10, params=2000, room=6200):
    own = torch.randn(params, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    energy = room / 64
    noise = torch.tensor([devices / (64 * 10 ** (snr_db / 10))], dtype=torch.float64)
    return choose_plan(own, torch.ones(params), Expected(noise, energy, devices * (1 + 0.2 * (devices - 1))), room)


def test_a_modulo_stage_is_planned_only_where_one_device_alone_is_heard():
    assert [len(plan_at(snr_db).cells) for snr_db in (-10, 0, 8, 15, 20)] == [0, 0, 0, 2, 2]
    assert len(plan_at(8, devices=2).cells) > 0
    assert len(plan_at(15, devices=100).cells) == 0


@pytest.mark.parametrize("room", [300, 1500, 2500, 4100, 8000])
def test_a_plan_has_room_for_all_that_it_sends(room):
    plan = plan_at(20, room=room)
    assert plan.used <= room
    assert sum(plan.shares) == pytest.approx(1)
    assert list(plan.numbers) == sorted(plan.numbers, reverse=True)


def fitted(sums, noise, own=None):
    size = len(sums)
    own = torch.zeros(size, dtype=torch.float64) if own is None else own
    levels, tensors = torch.full((size,), noise, dtype=torch.float64), torch.zeros(size, dtype=torch.int64)
    prior = fit_prior(sums, levels, own, torch.ones(size), tensors, 1)
    return posterior(sums, levels, prior)


def test_of_gaussian_sums_the_posterior_mean_is_that_of_wiener():
    rng = torch.Generator().manual_seed(0)
    truth = 2 * torch.randn(20_000, generator=rng, dtype=torch.float64)
    heard = truth + torch.randn(20_000, generator=rng, dtype=torch.float64)
    mean, variance = fitted(heard, 1.0)
    # 4/5 of what is heard, and the error 4/5; the sample error of a mean square over 20,000 is one percent
    assert float((mean - truth).square().mean()) == pytest.approx(0.8, rel=0.03)
    assert float(variance.mean()) == pytest.approx(0.8, rel=0.05)


def test_of_sparse_sums_the_posterior_mean_errs_less_than_that_of_wiener():
    rng = torch.Generator().manual_seed(0)
    truth = 6 * torch.randn(20_000, generator=rng, dtype=torch.float64) * (torch.rand(20_000, generator=rng) < 0.1)
    heard = truth + torch.randn(20_000, generator=rng, dtype=torch.float64)
    wiener = 3.6 / 4.6
    assert float((fitted(heard, 1.0)[0] - truth).square().mean()) < 0.5 * wiener


def test_predictions_that_are_too_far_apart_cost_little():
    """The logarithms of the true variances are .4 of those predicted; one mixture for all would cost a sixth."""
    rng, size = torch.Generator().manual_seed(0), 8000
    predicted, noise = torch.linspace(5, -5, size, dtype=torch.float64).exp(), torch.ones(size, dtype=torch.float64)
    variances = predicted**0.4
    truth = variances.sqrt() * torch.randn(size, generator=rng, dtype=torch.float64)
    heard = truth + torch.randn(size, generator=rng, dtype=torch.float64)
    zeros = torch.zeros(size, dtype=torch.float64)
    prior = fit_prior(heard, noise, zeros, predicted, zeros.long(), 1)
    error = float((posterior(heard, noise, prior)[0] - truth).square().sum())
    assert error < 1.1 * float((variances / (1 + variances)).sum())


def test_an_own_update_that_tells_the_sums_is_followed():
    rng = torch.Generator().manual_seed(0)
    own = torch.randn(5000, generator=rng, dtype=torch.float64)
    truth = 3 * own + 0.1 * torch.randn(5000, generator=rng, dtype=torch.float64)
    heard = truth + torch.randn(5000, generator=rng, dtype=torch.float64)
    assert float((fitted(heard, 1.0, own)[0] - truth).square().mean()) < 0.1
