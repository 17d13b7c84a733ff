import math

import numpy as np
import pytest
import torch

from aircomp.aggregation.rules import aggregate, aggregator_names, find_rule
from aircomp.errors import ConfigError, ShapeError
from plain.aggregate import own_of

COUNTS = torch.tensor([[3, 1, 0], [0, 0, 0]])
CODEWORDS = torch.tensor([[1.0, -2.0], [5.0, 4.0], [9.0, 9.0]])


def test_the_names_are_those_of_the_interface():
    assert aggregator_names() == [
        "mean",
        "majority-vote",
        "trimmed-mean",
        "coordinate-median",
        "coordinate-trimmed-mean",
        "geometric-median",
        "sign-vote",
        "length-limit",
        "rarity",
    ]


@pytest.mark.parametrize("rule", aggregator_names())
def test_a_slot_without_messages_gives_zero(rule):
    found = aggregate(rule, COUNTS, CODEWORDS, **own_of(rule, COUNTS, CODEWORDS))
    assert torch.equal(found[1], torch.zeros(2))


@pytest.mark.parametrize("rule", aggregator_names())
def test_a_round_without_slots_gives_no_fragments(rule):
    nothing = torch.zeros(0, 3, dtype=torch.int64)
    assert aggregate(rule, nothing, CODEWORDS, **own_of(rule, nothing, CODEWORDS)).shape == (0, 2)


@pytest.mark.parametrize("rule", aggregator_names())
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_codewords_whatever_that_of_the_counts(rule, dtype):
    own = own_of(rule, COUNTS, CODEWORDS)
    expected = aggregate(rule, COUNTS, CODEWORDS.to(dtype), **own)
    assert expected.dtype == dtype
    for counts in (COUNTS.to(torch.uint8), COUNTS.to(torch.int16), COUNTS.double()):
        assert torch.equal(aggregate(rule, counts, CODEWORDS.to(dtype), **own), expected)


@pytest.mark.parametrize("rule", sorted(set(aggregator_names()) - {"sign-vote", "length-limit"}))
def test_when_all_devices_agree_the_result_is_their_message(rule):
    counts = torch.tensor([[0, 7, 0]])
    own = own_of(rule, counts, CODEWORDS)
    torch.testing.assert_close(
        aggregate(rule, counts, CODEWORDS, **own), CODEWORDS[1:2], rtol=1e-6, atol=0
    )  # float32 7·x/7


def test_a_function_of_ones_own_is_a_rule():
    def largest(counts, codewords, *, sign=1.0):
        present = torch.where(counts[:, :, None] > 0, codewords, -math.inf)
        return sign * present.amax(dim=1)

    assert torch.equal(aggregate(largest, COUNTS[:1], CODEWORDS), torch.tensor([[5.0, 4.0]]))
    assert torch.equal(aggregate(largest, COUNTS[:1], CODEWORDS, sign=-1.0), torch.tensor([[-5.0, -4.0]]))


def test_a_function_of_ones_own_may_use_soft_counts():
    soft = COUNTS.float() / 3
    assert torch.equal(aggregate(lambda x, q: x @ q, soft, CODEWORDS), soft @ CODEWORDS)


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("wrong", [lambda x, q: q, lambda x, q: None])
def test_a_function_that_returns_something_else_is_refused(wrong):
    with pytest.raises(
        ShapeError, match=r"what .*<lambda> returned is .*; expected a tensor of float numbers \[slots = "
    ):
        aggregate(wrong, COUNTS, CODEWORDS)


def test_an_unknown_rule_names_the_nearest():
    with pytest.raises(ConfigError, match="there is no aggregation rule 'trimed-mean': did you mean 'trimmed-mean'"):
        aggregate("trimed-mean", COUNTS, CODEWORDS)


def test_an_unknown_option_names_the_nearest():
    with pytest.raises(ConfigError, match="there is no option of the aggregation rule 'trimmed-mean' called 'kept'"):
        aggregate("trimmed-mean", COUNTS, CODEWORDS, kept=0.5)
    with pytest.raises(ConfigError, match="'mean' has no options; leave out 'keep'"):
        aggregate("mean", COUNTS, CODEWORDS, keep=0.5)


def test_a_wrong_name_is_found_before_there_are_counts():
    with pytest.raises(ConfigError, match="there is no aggregation rule"):
        find_rule("modal")
    assert torch.equal(find_rule("trimmed-mean", keep=1.0)(COUNTS[:1], CODEWORDS), torch.tensor([[2.0, -0.5]]))


@pytest.mark.parametrize("rule", ["trimmed-mean", "coordinate-trimmed-mean"])
@pytest.mark.parametrize("keep", [0.0, -0.1, 1.1, math.nan])
def test_a_share_to_keep_outside_zero_to_one_is_refused(rule, keep):
    with pytest.raises(ConfigError, match=r"keep is .*; expected a number above 0 and at most 1"):
        aggregate(rule, COUNTS, CODEWORDS, keep=keep)


def test_other_options_without_meaning_are_refused():
    with pytest.raises(ConfigError, match="iterations is 0; expected an integer"):
        aggregate("geometric-median", COUNTS, CODEWORDS, iterations=0)
    for scale in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ConfigError, match=r"scale is .*; expected a number above 0"):
            aggregate("sign-vote", COUNTS, CODEWORDS, scale=scale)


def test_soft_counts_are_for_the_mean_only():
    soft = torch.tensor([[0.5, 1.5, 0.0]])
    # (0.5·1 + 1.5·5) / 2 and (0.5·(-2) + 1.5·4) / 2
    assert torch.equal(aggregate("mean", soft, CODEWORDS), torch.tensor([[4.0, 2.5]]))
    for rule in set(aggregator_names()) - {"mean"}:
        with pytest.raises(ShapeError, match="pass the decoded counts, not their mean"):
            aggregate(rule, soft, CODEWORDS)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_counts_that_are_no_counts_are_refused(value):
    with pytest.raises(ShapeError, match=r"counts .*(holds negative|not finite)"):
        aggregate("mean", torch.tensor([[1.0, value, 0.0]]), CODEWORDS)


def test_negative_integers_are_refused():
    with pytest.raises(ShapeError, match="counts holds negative"):
        aggregate("trimmed-mean", torch.tensor([[1, -1, 0]]), CODEWORDS)


def test_codewords_that_are_not_finite_are_refused():
    with pytest.raises(ShapeError, match=r"codewords is .* with values that are not finite"):
        aggregate("mean", COUNTS, CODEWORDS / 0)


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize(
    ("counts", "codewords", "message"),
    [
        (COUNTS[0], CODEWORDS, r"counts is torch.int64 \[3\]; expected"),
        (COUNTS > 0, CODEWORDS, "counts is torch.bool"),
        (COUNTS, CODEWORDS[0], r"codewords is torch.float32 \[2\]"),
        (COUNTS, CODEWORDS.long(), "codewords is torch.int64 .*; expected a tensor of finite floating-point"),
        (COUNTS, CODEWORDS[:2], r"counts has shape \(2, 3\) and codewords \(2, 2\)"),
        (COUNTS[:, :0], CODEWORDS[:0], r"counts has shape \(2, 0\)"),
        (np.ones((2, 3)), CODEWORDS, "counts is the ndarray .*; expected a tensor"),
        (COUNTS.to("meta"), CODEWORDS, r"counts is torch.int64 \[2, 3\] on meta"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_by_name(counts, codewords, message):
    with pytest.raises(ShapeError, match=message):
        aggregate("mean", counts, codewords)
