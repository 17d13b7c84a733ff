import math
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.common.tensors import tensor_hash
from aircomp.data.partition import Partition, split
from aircomp.data.settings import PartitionSettings
from aircomp.errors import ConfigError, ShapeError
from helpers.draws import seeded

KINDS = ["shards", "iid", "dirichlet"]


def balanced_labels(num_samples: int, num_classes: int = 10) -> torch.Tensor:
    return torch.arange(num_samples) % num_classes


def entropy(counts: torch.Tensor) -> torch.Tensor:
    shares = counts / counts.sum(dim=1, keepdim=True)
    return torch.special.entr(shares).sum(dim=1)


@given(
    kind=st.sampled_from(KINDS),
    num_devices=st.integers(1, 12),
    per_device=st.integers(4, 20),
    surplus=st.integers(0, 11),
    iid_fraction=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    alpha=st.sampled_from([1e-3, 0.5, 100.0]),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=50)
def test_no_sample_has_two_holders_and_all_devices_hold_as_many(
    kind, num_devices, per_device, surplus, iid_fraction, alpha, seed
):
    labels = torch.randint(0, 5, (num_devices * per_device + surplus,), generator=seeded(seed))
    own = {"shards": {"iid_fraction": iid_fraction}, "dirichlet": {"alpha": alpha}}.get(kind, {})
    chosen = PartitionSettings(kind=kind, base_station_samples=per_device // 2, **own)
    partition = split(labels, num_devices, chosen, rng=seeded(seed))
    held = torch.cat([partition.base_station, torch.cat(partition.devices)])
    assert len(held.unique()) == len(held)
    assert held.min() >= 0
    assert held.max() < len(labels)
    assert partition.base_station.shape == (per_device // 2,)
    # each of the parts (two for shards) leaves fewer than num_devices unused
    unused = len(labels) - len(held)
    assert unused <= (2 if kind == "shards" else 1) * (num_devices - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_base_station_takes_one_share_unless_told(kind, rng):
    partition = split(balanced_labels(410), 40, PartitionSettings(kind=kind), rng=rng)
    assert len(partition.base_station) == 410 // 41


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_base_station_devices_hold_everything(kind, rng):
    partition = split(balanced_labels(400), 40, PartitionSettings(kind=kind), rng=rng, base_station=False)
    assert len(partition.base_station) == 0
    assert torch.stack(partition.devices).shape == (40, 10)
    assert partition.class_counts(balanced_labels(400), 10)[0].tolist() == [0] * 10


@pytest.mark.parametrize("kind", KINDS)
def test_equal_generators_give_equal_partitions_and_others_do_not(kind):
    labels, chosen = balanced_labels(600), PartitionSettings(kind=kind)
    first, again, other = (split(labels, 10, chosen, rng=seeded(s)) for s in (1, 1, 2))
    assert torch.equal(torch.cat(first.devices), torch.cat(again.devices))
    assert torch.equal(first.base_station, again.base_station)
    assert not torch.equal(torch.cat(first.devices), torch.cat(other.devices))


def test_a_dirichlet_partition_keeps_its_bits():
    chosen = PartitionSettings(kind="dirichlet", alpha=0.3)
    devices = split(balanced_labels(2000), 20, chosen, rng=seeded()).devices
    assert tensor_hash(torch.stack(devices)).startswith("ed9b86ca00a351ca")


def test_drawing_class_shares_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    split(balanced_labels(600), 10, PartitionSettings(kind="dirichlet"), rng=seeded())
    assert torch.equal(torch.get_rng_state(), before)


def test_fully_sorted_shards_are_dealt_to_devices_in_the_order_of_labels(rng):
    labels = balanced_labels(1000)[torch.randperm(1000, generator=rng)]
    partition = split(labels, 9, PartitionSettings(iid_fraction=0.0), rng=rng)
    dealt = labels[torch.cat(partition.devices)]
    assert (dealt.diff() >= 0).all()


def test_ties_of_the_sort_are_in_random_order(rng):
    partition = split(torch.zeros(1000, dtype=torch.long), 4, PartitionSettings(iid_fraction=0.0), rng=rng)
    # of the 799 neighbours in a random order half rise; six standard deviations are 6 · sqrt(799 / 12) < 50
    rises = int((torch.cat(partition.devices).diff() > 0).sum())
    assert abs(rises - 400) < 50


def test_the_papers_split_has_a_fifth_at_random_and_the_rest_sorted(rng):
    labels = balanced_labels(50_000)
    partition = split(labels, 40, PartitionSettings(base_station_samples=1000), rng=rng)
    assert torch.stack(partition.devices).shape == (40, 245 + 980)  # 9,800 and 39,200 of the remaining 49,000
    held = torch.stack(partition.devices)
    random_part, sorted_part = labels[held[:, :245]], labels[held[:, 245:]]
    assert (sorted_part.flatten().diff() >= 0).all()
    # a device's 245 random labels over ten classes: mean 24.5, standard deviation below sqrt(24.5) < 5
    counts = torch.stack([row.bincount(minlength=10) for row in random_part])
    assert (counts - 24.5).abs().max() < 6 * 5


def test_base_station_set_is_drawn_from_all_classes_alike(rng):
    counts = split(balanced_labels(50_000), 40, PartitionSettings(), rng=rng).class_counts(balanced_labels(50_000), 10)
    num_base = 50_000 // 41
    # binomial standard deviation of a class; six of them
    assert (counts[0] - num_base / 10).abs().max() < 6 * math.sqrt(num_base * 0.1 * 0.9)


def test_small_alpha_makes_devices_of_few_classes_and_large_alpha_devices_that_are_alike(rng):
    labels = balanced_labels(20_000)

    def mean_entropy(alpha: float) -> float:
        partition = split(labels, 40, PartitionSettings(kind="dirichlet", alpha=alpha), rng=rng)
        return float(entropy(partition.class_counts(labels, 10)[1:]).mean())

    assert mean_entropy(0.01) < 0.5  # about one class; some devices take what is left of several
    assert 1.0 < mean_entropy(0.5) < 2.0
    # shares of Dirichlet(1000) vary by one part in a hundred, so the entropy is that of the uniform distribution
    assert mean_entropy(1000.0) > math.log(10) - 0.05


def test_dirichlet_shares_have_the_moments_of_the_distribution(rng):
    # Many samples and few devices, so that no class runs out; class shares then have variance
    # (1/C)(1 - 1/C) / (Cα + 1), plus the draw's own, at most 1 / (4 share).
    labels, alpha = balanced_labels(400_000, 4), 2.0
    chosen = PartitionSettings(kind="dirichlet", alpha=alpha, base_station_samples=200_000)
    shares = split(labels, 400, chosen, rng=rng).class_counts(labels, 4)[1:] / 500
    early = shares[:200]  # the first half takes at most 100,000 of the 200,000: no class of 50,000 is near its end
    expected = 0.25 * 0.75 / (4 * alpha + 1)
    # the variance estimate from 200 devices has relative standard deviation about sqrt(2 / 200) = 0.1; averaged over
    # four (dependent) classes it is less
    assert float(early.var(dim=0).mean()) == pytest.approx(expected, rel=0.3)


def test_class_counts_equal_a_plain_count(rng):
    labels = torch.randint(0, 4, (200,), generator=rng)
    partition = split(labels, 6, PartitionSettings(), rng=rng)
    plain = [
        [sum(int(labels[i]) == c for i in holder.tolist()) for c in range(4)]
        for holder in [partition.base_station, *partition.devices]
    ]
    assert partition.class_counts(labels, 4).tolist() == plain


def test_labels_need_not_be_contiguous(rng):
    labels = torch.tensor([3, 70] * 50)
    partition = split(labels, 5, PartitionSettings(kind="dirichlet"), rng=rng)
    assert torch.stack(partition.devices).shape == (5, 16)


def test_labels_beyond_the_classes_are_refused():
    partition = Partition(torch.tensor([0]), (torch.tensor([1]), torch.tensor([2])))
    with pytest.raises(ShapeError, match="labels run from 0 to 5; expected 0 to 4"):
        partition.class_counts(torch.tensor([0, 5, 1]), 5)


@pytest.mark.parametrize("kind", KINDS)
def test_more_devices_than_samples_is_refused(kind, rng):
    with pytest.raises(ConfigError, match="10 samples are too few for 20 devices"):
        split(balanced_labels(10), 20, PartitionSettings(kind=kind), rng=rng)


def test_a_base_station_that_takes_all_is_refused(rng):
    with pytest.raises(ConfigError, match="100 samples are too few for 10 devices and 95 of the base station"):
        split(balanced_labels(100), 10, PartitionSettings(base_station_samples=95), rng=rng)


def test_parts_too_small_to_divide_are_refused(rng):
    # 15 samples for 10 devices: 8 random and 7 sorted ones, neither part goes round
    with pytest.raises(ConfigError, match="leave 10 devices without any"):
        split(balanced_labels(16), 10, PartitionSettings(iid_fraction=0.5, base_station_samples=1), rng=rng)


def test_no_devices_are_refused(rng):
    with pytest.raises(ConfigError, match="num_devices = 0"):
        split(balanced_labels(10), 0, PartitionSettings(), rng=rng)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"kind": "shard"}, "kind = 'shard'"),
        ({"iid_fraction": 1.2}, "iid_fraction = 1.2"),
        ({"iid_fraction": -0.1}, "iid_fraction = -0.1"),
        ({"kind": "dirichlet", "alpha": 0.0}, "alpha = 0.0"),
        ({"base_station_samples": 0}, "base_station_samples = 0"),
    ],
)
def test_settings_out_of_range_are_refused(values, match):
    with pytest.raises(ConfigError, match=match):
        PartitionSettings(**values)


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_devices_take_less_than_a_second(kind, rng):
    labels = balanced_labels(50_000)
    start = time.process_time()
    partition = split(labels, 1000, PartitionSettings(kind=kind), rng=rng)
    assert time.process_time() - start < 1.0
    assert len(partition.devices) == 1000


def test_sizes_follow_a_power_of_the_devices_number(rng):
    chosen = PartitionSettings(kind="power-law", exponent=1.0)
    partition = split(balanced_labels(1000), 4, chosen, rng=rng, base_station=False)
    # one sample each, and 996 in the shares 12/25, 6/25, 4/25 and 3/25 of the harmonic sum
    assert [len(rows) for rows in partition.devices] == [1 + 478, 1 + 239, 1 + 159, 1 + 120]
    assert len(torch.cat(partition.devices).unique()) == 1000


@pytest.mark.parametrize("alpha", [0.01, 1.0, 1e4])
def test_random_sizes_leave_nobody_out_and_are_alike_at_a_large_concentration(alpha):
    chosen = PartitionSettings(kind="quantity", alpha=alpha)
    sizes = [len(rows) for rows in split(balanced_labels(2000), 20, chosen, rng=seeded(), base_station=False).devices]
    assert sum(sizes) == 2000
    assert min(sizes) >= 1
    # of a Dirichlet share with mean 1/20 the deviation is 1/20 · sqrt(19 / (20 α + 1)): 1 % of it at the largest α, so four
    # of them are 4 samples, and rounding is one
    assert (max(sizes) - min(sizes) <= 10) == (alpha == 1e4)
