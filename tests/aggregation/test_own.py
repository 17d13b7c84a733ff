"""Rules that compare with the base station's own fragments: when they are the mean, what they withstand, and what not."""

import pytest
import torch

import aircomp
from aircomp.aggregation.rules import aggregate
from aircomp.channel.awgn import Awgn
from aircomp.errors import ConfigError, ShapeError

WORDS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -10.0]])
"""Three that honest devices choose, and one that attackers do."""


def popular(slots=200, devices=10, attackers=0, seed=0):
    """Return the counts of slots, and own fragments: all choose among the first three, attackers the last."""
    rng = torch.Generator().manual_seed(seed)
    drawn = torch.randint(3, (slots, devices + 1), generator=rng)
    own, chosen = WORDS[drawn[:, 0]], drawn[:, 1:].clone()
    chosen[:, :attackers] = 3
    return torch.nn.functional.one_hot(chosen, 4).sum(dim=1), own


def test_a_limit_that_nobody_reaches_is_the_mean():
    counts, own = popular()
    assert torch.equal(aggregate("length-limit", counts, WORDS, own=2 * own), aggregate("mean", counts, WORDS))


def test_no_attacker_moves_the_mean_by_more_than_its_share_of_the_own_length():
    counts, own = popular(attackers=0)
    attacked = counts.clone()
    attacked[:, 3] += 3
    huge = WORDS * torch.tensor([1.0, 1.0, 1.0, 1e6])[:, None]
    before, after = (
        aggregate("length-limit", each, huge, own=own) * each.sum(1)[:, None] for each in (counts, attacked)
    )
    assert float((after - before).norm(dim=1).max()) <= 3 * 1.001


def test_an_own_fragment_of_zero_lets_nothing_pass():
    counts, own = popular()
    assert not aggregate("length-limit", counts, WORDS, own=0 * own).any()


def test_a_codeword_that_the_base_station_never_chose_loses_its_weight():
    counts, own = popular(attackers=3)
    honest = counts.clone()
    honest[:, 3] = 0
    found, truth = aggregate("rarity", counts, WORDS, own=own), aggregate("mean", honest, WORDS)
    # with a half in 202 choices of the base station the weight is .0025/.3 of that of the others, at ten times the length
    error = float((found - truth).square().sum() / truth.square().sum())
    taken = float((aggregate("mean", counts, WORDS) - truth).square().sum() / truth.square().sum())
    assert error < 0.02 < 10 < taken


def test_where_devices_choose_as_the_base_station_does_rarity_is_the_mean():
    counts, own = popular(slots=5000)
    # frequencies of 5,000 slots are known to 1 %
    found, truth = aggregate("rarity", counts, WORDS, own=own), aggregate("mean", counts, WORDS)
    torch.testing.assert_close(found, truth, rtol=0, atol=0.03)


@pytest.mark.parametrize("rule", ["length-limit", "rarity"])
def test_flips_of_equally_popular_codewords_defeat_it(rule):
    words = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    counts = torch.tensor([[7, 3], [3, 7]] * 50)  # three of ten send the negative
    own = words.repeat(50, 1)
    torch.testing.assert_close(aggregate(rule, counts, words, own=own), aggregate("mean", counts, words))


@pytest.mark.parametrize("name", ["perfect", "tdma-vq", "channelcomp"])
def test_a_link_hands_a_rule_the_base_stations_own_update_by_name(name):
    def nothing_else(counts, codewords, *, own):
        return own

    updates = torch.randn(4, 100, generator=torch.Generator().manual_seed(0))
    sent = aircomp.Link(name, Awgn(10.0, "transmit"), nothing_else).send(updates, updates[1])
    told = sent.update != 0  # channelcomp leaves some parameters out
    torch.testing.assert_close(sent.update[told], updates[1][told])
    assert told.double().mean() > 0.4


def test_without_own_fragments_they_say_what_is_missing():
    with pytest.raises(ConfigError, match="pass the base station's own fragments"):
        aggregate("rarity", torch.ones(1, 4, dtype=torch.int64), WORDS)
    with pytest.raises(ShapeError, match="a fragment for every slot"):
        aggregate("rarity", torch.ones(1, 4, dtype=torch.int64), WORDS, own=WORDS)
