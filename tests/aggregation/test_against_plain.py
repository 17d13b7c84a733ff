import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.aggregation import robust
from aircomp.aggregation.rules import aggregate, aggregator_names
from aircomp.encode.codebook import count
from plain import aggregate as plain
from plain.aggregate import own_of

PLAIN = {name: getattr(plain, name.replace("-", "_")) for name in aggregator_names()}


@st.composite
def rounds(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Counts of a few slots with many ties and different numbers of devices, and codewords with repeated entries."""
    slots, codewords, fragment = draw(st.integers(1, 5)), draw(st.integers(1, 7)), draw(st.integers(1, 4))
    row = st.lists(st.integers(0, 4), min_size=codewords, max_size=codewords)
    counts = torch.tensor(draw(st.lists(row, min_size=slots, max_size=slots)))
    rng = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    values = torch.randn(codewords, fragment, generator=rng, dtype=torch.float64)
    return counts, (values * 2).round() / 2 if draw(st.booleans()) else values


@pytest.mark.parametrize("rule", aggregator_names())
@settings(deadline=None, max_examples=50)
@given(data=rounds())
def test_every_rule_does_what_its_plain_version_does(rule, data):
    counts, codewords = data
    # float64 on both sides, sums of tens of terms of order one; the geometric median also divides by small distances
    atol = 1e-7 if rule == "geometric-median" else 1e-12
    own = own_of(rule, counts, codewords)
    found, slow = aggregate(rule, counts, codewords, **own), PLAIN[rule](counts, codewords, **own)
    torch.testing.assert_close(found, slow, rtol=0, atol=atol)


@pytest.mark.parametrize("rule", ["trimmed-mean", "coordinate-trimmed-mean"])
@settings(deadline=None, max_examples=50)
@given(data=rounds(), keep=st.one_of(st.sampled_from([0.2, 0.28, 0.5, 0.6, 0.7, 1.0]), st.floats(1e-12, 1.0)))
def test_trimming_is_the_plain_one_for_any_share(rule, data, keep):
    counts, codewords = data
    fast, slow = aggregate(rule, counts, codewords, keep=keep), PLAIN[rule](counts, codewords, keep=keep)
    torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)  # float64


@pytest.mark.parametrize("rule", aggregator_names())
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32), num_active=st.integers(1, 9))
def test_the_order_of_devices_and_of_codewords_does_not_matter(rule, seed, num_active):
    rng = torch.Generator().manual_seed(seed)
    codewords = torch.randn(6, 3, generator=rng, dtype=torch.float64)
    indices = torch.randint(6, (4, num_active), generator=rng)
    devices, renamed = torch.randperm(num_active, generator=rng), torch.randperm(6, generator=rng)
    own = own_of(rule, indices, codewords)
    expected = aggregate(rule, count(indices.T, 6), codewords, **own)
    shuffled = aggregate(rule, count(indices[:, devices].T, 6), codewords, **own)
    assert torch.equal(shuffled, expected)
    relabelled = aggregate(rule, count(indices.T, 6)[:, renamed], codewords[renamed], **own)
    atol = 1e-7 if rule == "geometric-median" else 1e-12  # as above: sums in another order
    torch.testing.assert_close(relabelled, expected, rtol=0, atol=atol)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32), num_active=st.integers(1, 9))
def test_the_mean_over_counts_is_the_dense_mean(seed, num_active):
    rng = torch.Generator().manual_seed(seed)
    codewords = torch.randn(6, 3, generator=rng, dtype=torch.float64)
    indices = torch.randint(6, (4, num_active), generator=rng)
    dense = codewords[indices].mean(dim=1)
    torch.testing.assert_close(aggregate("mean", count(indices.T, 6), codewords), dense, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", ["majority-vote", "trimmed-mean"])
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32), num_active=st.integers(1, 9))
def test_without_collisions_the_papers_rules_are_the_mean(rule, seed, num_active):
    rng = torch.Generator().manual_seed(seed)
    codewords = torch.randn(9, 3, generator=rng, dtype=torch.float64)
    counts = count(torch.randperm(9, generator=rng)[:num_active, None], 9)
    expected = aggregate("mean", counts, codewords)
    torch.testing.assert_close(aggregate(rule, counts, codewords), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", aggregator_names())
def test_the_size_of_a_block_does_not_matter(rule, monkeypatch):
    rng = torch.Generator().manual_seed(0)
    codewords = torch.randn(16, 5, generator=rng)
    counts = count(torch.randint(16, (10, 101), generator=rng), 16)
    own = own_of(rule, counts, codewords)
    expected = aggregate(rule, counts, codewords, **own)
    for block in (1, 50, 333):
        monkeypatch.setattr(robust, "BLOCK", block)
        torch.testing.assert_close(aggregate(rule, counts, codewords, **own), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", aggregator_names())
def test_whole_vectors_are_one_slot_with_a_codeword_for_each_device(rule):
    rng = torch.Generator().manual_seed(0)
    vectors = torch.randn(5, 300, generator=rng, dtype=torch.float64)
    counts = torch.ones(1, 5, dtype=torch.int64)
    own = own_of(rule, counts, vectors)
    torch.testing.assert_close(
        aggregate(rule, counts, vectors, **own), PLAIN[rule](counts, vectors, **own), rtol=0, atol=1e-10
    )  # float64, norms of 300 entries
