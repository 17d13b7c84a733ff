"""Codes over a prime field: checks hold, sums of words are words, and graphs have no short cycles."""

import pytest
import torch

from aircomp.encode.ldpc import GRAPHS, LENGTH, checks_of, girth, make_code, prime_above


@pytest.mark.parametrize("prime", [11, 17, 53])
@pytest.mark.parametrize("graph", GRAPHS)
def test_words_satisfy_their_checks_and_so_do_sums_of_words(graph, prime, rng):
    code = make_code(prime, graph)
    words = code.encode(torch.randint(prime, (5, 7, graph.information), generator=rng))
    assert words.shape == (5, 7, LENGTH)
    assert code.holds(words.flatten(0, 1)).all()
    assert code.holds(words.sum(dim=0) % prime).all()
    words[:, :, 3] = (words[:, :, 3] + 1) % prime
    assert not code.holds(words.flatten(0, 1)).any()


@pytest.mark.parametrize(("graph", "least"), list(zip(GRAPHS, (9, 6, 5, 4, 3), strict=True)))
def test_graphs_are_regular_and_have_no_short_cycles(graph, least):
    checks = checks_of(graph)
    assert checks.shape == (graph.checks, graph.degree)
    assert (torch.bincount(checks.flatten()) == 2).all()
    assert girth(checks) >= least  # two parallel edges would be two, any triangle three


def test_the_field_is_the_least_that_sums_do_not_wrap_in():
    assert [prime_above(number) for number in (1, 2, 10, 16, 48)] == [2, 3, 11, 17, 53]
