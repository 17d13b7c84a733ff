import logging
from dataclasses import replace

import pytest
import torch

from aircomp.decoders.estimate.round_estimate import smooth
from aircomp.decoders.side import STRENGTH
from aircomp.encode.codebook import count
from aircomp.errors import ArtefactError, ConfigError
from aircomp.quantize.codebook import codeword_order, lookup, nearest
from aircomp.train.batches import blocks, choose_slots, draw, make_batch, vary, zipf_round
from aircomp.train.fragments import FragmentRound, load_round, save_round, write_description
from aircomp.train.recipe import RoundsSettings
from aircomp.train.rounds import TrainingRound, arrange, deal, load_rounds, requantize


def plain_round(name="a/round", num_slots=50, num_active=3):
    rng = torch.Generator().manual_seed(0)
    indices = torch.randint(0, 16, (num_active, num_slots), generator=rng).to(torch.int16)
    return TrainingRound(name, indices, torch.full((16,), 1 / 16), torch.randn(16, 4, generator=rng), None)


@pytest.mark.parametrize("number", [3, 4, 10, 31])
def test_every_round_is_in_exactly_one_part(number, rng):
    rounds = [plain_round(f"a/round_{i}") for i in range(number)]
    split = deal(rounds, RoundsSettings(), rng=rng)
    names = split.names
    assert sorted(name for part in names.values() for name in part) == sorted(r.name for r in rounds)
    assert len(names["validation"]) == len(names["test"]) == max(1, round(0.1 * number))


def test_the_split_depends_on_the_seed_only(collection):
    names = [load_rounds([collection], RoundsSettings(), seed=seed).names for seed in (0, 0, 1)]
    assert names[0] == names[1] != names[2]


def test_one_round_to_validate_on_is_said_to_be_little(rng, caplog):
    with caplog.at_level(logging.WARNING):
        deal([plain_round(str(i)) for i in range(5)], RoundsSettings(), rng=rng)
    assert "5 rounds: 1 to validate and 1 to test on" in caplog.text


def test_several_collections_are_trained_on_together(collection, tmp_path, synthetic_round):
    other = tmp_path / "other"
    for index in range(3):
        save_round(other, index, synthetic_round(100 + index, raw=False, num_slots=30))
    split = load_rounds([collection, other], RoundsSettings(), seed=0)
    rounds = [*split.train, *split.validation, *split.test]
    assert {r.name.split("/")[0] for r in rounds} == {"fragments", "other"}
    assert {r.num_slots for r in rounds} == {60, 30}
    assert {r.mean_fragments is None for r in rounds} == {True, False}


def test_mistakes_with_directories_are_named(collection, tmp_path, synthetic_round):
    with pytest.raises(ConfigError, match="given twice"):
        load_rounds([collection, collection / ".." / "fragments"], RoundsSettings(), seed=0)
    with pytest.raises(ArtefactError, match="holds no rounds"):
        load_rounds([tmp_path / "nowhere"], RoundsSettings(), seed=0)
    few = tmp_path / "few"
    for index in range(2):
        save_round(few, index, synthetic_round(index))
    with pytest.raises(ConfigError, match="2 rounds cannot be split"):
        load_rounds([few], RoundsSettings(), seed=0)
    save_round(few, 2, synthetic_round(2, num_codewords=8))
    with pytest.raises(ArtefactError, match=r"shape \(8, 4\).*\(16, 4\); train on collections of one size"):
        load_rounds([few], RoundsSettings(), seed=0)


@pytest.mark.parametrize("order", ["popularity", "none", "cosine"])
def test_another_order_only_renumbers_the_codewords(order, rng, synthetic_round):
    saved = synthetic_round(1)
    moved = arrange(saved, order, rng=rng)
    assert torch.equal(lookup(moved.indices, moved.quant_codebook), lookup(saved.indices, saved.quant_codebook))
    assert torch.equal(lookup(moved.bs_indices, moved.quant_codebook), lookup(saved.bs_indices, saved.quant_codebook))
    own = count(moved.bs_indices[None], 16).sum(dim=0) / saved.num_slots
    torch.testing.assert_close(moved.popularity, own, rtol=1e-6, atol=1e-7)


def test_orders_are_what_they_say(rng, synthetic_round):
    saved = arrange(synthetic_round(1), "none", rng=rng)
    assert (saved.popularity.diff() > 0).any(), "shuffled"
    popular = arrange(saved, "popularity", rng=rng)
    assert (popular.popularity.diff() <= 0).all()
    beside = arrange(saved, "cosine", rng=rng).quant_codebook
    assert torch.equal(beside, saved.quant_codebook[codeword_order(saved.quant_codebook, saved.popularity, "cosine")])


def load_as_drawn(directory, seed=0, **settings):
    split = load_rounds([directory], RoundsSettings(order="none", **settings), seed=seed)
    return {r.name: r for r in [*split.train, *split.validation, *split.test]}


def test_without_an_order_codewords_stay_as_they_were_drawn(collection):
    for name, found in load_as_drawn(collection).items():
        saved = load_round(collection.parent / f"{name}.safetensors")
        assert (found.popularity.diff() > 0).any(), "not by popularity"
        words = found.quant_codebook  # k-means++ draws fragments of the base station
        assert (saved.bs_fragments[None] == words[:, None]).all(dim=2).any(dim=1).all()
        assert torch.equal(found.indices.long(), nearest(saved.fragments, words))


def test_rounds_that_were_saved_as_drawn_are_left_as_they_are(tmp_path, synthetic_round):
    for index in range(3):
        save_round(tmp_path, index, arrange(synthetic_round(index), "none", rng=torch.Generator().manual_seed(index)))
    write_description(tmp_path, {}, "none")
    for name, found in load_as_drawn(tmp_path).items():
        saved = load_round(tmp_path.parent / f"{name}.safetensors")
        assert torch.equal(found.quant_codebook, saved.quant_codebook)
        assert torch.equal(found.indices.long(), saved.indices)


def test_without_raw_fragments_all_rounds_of_a_collection_are_shuffled_alike(tmp_path, synthetic_round):
    saved = [arrange(synthetic_round(index, raw=False), "popularity", rng=torch.Generator()) for index in range(3)]
    for index, each in enumerate(saved):
        save_round(tmp_path / "one", index, each)

    def shuffles(seed):
        found = load_as_drawn(tmp_path / "one", seed)
        words = [found[f"one/round_{index:05d}"].quant_codebook for index in range(3)]
        return [
            [int((each.quant_codebook == word).all(dim=1).nonzero()[0]) for word in book]
            for each, book in zip(saved, words, strict=True)
        ]

    first, *others = shuffles(0)
    assert sorted(first) == list(range(16)) != first
    assert all(each == first for each in others)
    assert shuffles(1)[0] != first


def test_a_description_without_an_order_is_named(tmp_path, synthetic_round):
    for index in range(3):
        save_round(tmp_path, index, synthetic_round(index))
    write_description(tmp_path, {}, "by size")
    with pytest.raises(ArtefactError, match=r"fragments.json tells no order of the codewords"):
        load_rounds([tmp_path], RoundsSettings(), seed=0)


def test_curvature_aware_rounds_are_quantised_anew(collection, rng, synthetic_round):
    saved = synthetic_round(1)
    again = requantize(saved, curvature_aware=True, rng=rng)
    assert torch.equal(again.indices, nearest(saved.fragments, again.quant_codebook))
    assert not torch.equal(again.quant_codebook, saved.quant_codebook)
    split = load_rounds([collection], RoundsSettings(curvature_aware=True), seed=0)
    assert (split.train[0].popularity.diff() <= 0).all()


def test_without_raw_fragments_curvature_says_how_to_get_them(tmp_path, synthetic_round):
    for index in range(3):
        save_round(tmp_path, index, synthetic_round(index, raw=False))
    with pytest.raises(ConfigError, match=r"round_00000.*no raw fragments.*--raw"):
        load_rounds([tmp_path], RoundsSettings(curvature_aware=True), seed=0)


def test_three_keys_are_enough_to_train_on(tmp_path, synthetic_round):
    for index in range(3):
        r = synthetic_round(index)
        save_round(tmp_path, index, FragmentRound(r.indices, r.popularity, r.quant_codebook))
    assert len(load_rounds([tmp_path], RoundsSettings(), seed=0).train[0].popularity) == 16


def test_samples_are_drawn_evenly_from_the_rounds(rng):
    rounds = [plain_round(num_slots=50), plain_round(num_slots=50), plain_round(num_slots=7)]
    chosen = choose_slots(rounds, 60, 8, rng=rng)
    assert [len(c) for c in chosen] == [24, 24, 7]  # 60 over 3 rounds, in whole batches of 8, as far as there are slots
    assert all(len(c.unique()) == len(c) for c in chosen)
    assert [len(c) for c in choose_slots(rounds, None, 8, rng=rng)] == [50, 50, 7]


def test_blocks_are_full_and_of_one_round(rng):
    slots = [torch.arange(50), torch.arange(100, 120), torch.arange(200, 205)]
    found = blocks(slots, 8, rng=rng)
    assert sorted(n for n, _ in found) == [0] * 6 + [1] * 2 + [2]
    for number, block in found:
        assert len(block) == (5 if number == 2 else 8)
        assert (block // 100 == number).all()
    together = torch.cat([block for _, block in found])
    assert len(together.unique()) == len(together)
    assert [n for n, _ in found] != sorted(n for n, _ in found), "batches of different rounds are mixed"


def test_a_batch_counts_its_slots_and_draws_its_channel():
    saved, slots = plain_round(num_active=5), torch.tensor([4, 9])
    settings = RoundsSettings(snr_db_low=-3, snr_db_high=7)
    found = [draw(saved, slots, settings, rng=torch.Generator().manual_seed(s)) for s in range(200)]
    for batch in found[:3]:
        assert torch.equal(batch.counts, count(saved.indices, 16)[slots].float())
        assert batch.num_active == 5
    snr = torch.tensor([b.snr_db for b in found])
    assert snr.min() >= -3
    assert snr.max() <= 7
    # the mean of 200 uniform numbers on a range of 10 has a deviation of 10/√(12·200) = 0.2
    assert snr.mean().item() == pytest.approx(2, abs=0.8)
    slot = sum(b.snr_reference == "slot" for b in found)
    assert 72 <= slot <= 128, "a fair coin, four deviations of √50"
    fixed = draw(saved, slots, settings.changed(snr_reference="round"), rng=torch.Generator())
    assert fixed.snr_reference == "round"


def test_a_range_of_devices_that_is_turned_round_is_refused():
    with pytest.raises(ConfigError, match="devices_low = 9 is above devices_high = 3; swap them"):
        RoundsSettings(devices_low=9, devices_high=3)


def test_impossible_settings_are_refused():
    with pytest.raises(ConfigError, match=r"snr_db_low = 9.0 is above snr_db_high = 3.0"):
        RoundsSettings(snr_db_low=9, snr_db_high=3)
    with pytest.raises(ConfigError, match="nothing to train on"):
        RoundsSettings(validation_fraction=0.5, test_fraction=0.5)


def test_side_information_is_judged_by_the_other_slots(tmp_path, synthetic_round):
    saved = synthetic_round(0, num_slots=40)
    layers = torch.arange(40) // 20
    for index in range(3):
        save_round(tmp_path, index, replace(saved, slot_layers=layers))
    settings = RoundsSettings(side_information=True)
    loaded = load_rounds([tmp_path], settings, seed=0).train[0]
    assert loaded.groups.keys() == {"slot_layers", "bs_indices"}
    slots = torch.tensor([3, 25])
    counts = count(loaded.indices.long(), 16).float()
    ratio = loaded.groups["slot_layers"].log_ratio(slots, counts[slots], torch.full((16,), 1 / 16))
    for row, slot in enumerate(slots.tolist()):
        others = [s for s in range(40) if s != slot and layers[s] == layers[slot]]
        chosen = STRENGTH / 16 + counts[others].sum(0)
        torch.testing.assert_close(ratio[row], (16 * chosen / chosen.sum()).log(), rtol=1e-5, atol=1e-5)
    weak, strong = (make_batch(loaded, slots, snr_db, "round").log_ratio for snr_db in (-10.0, 30.0))
    assert weak.norm() < 0.1 * strong.norm(), "a first decoding at low SNR tells little"
    assert make_batch(load_rounds([tmp_path], RoundsSettings(), seed=0).train[0], slots, 0.0, "round").log_ratio is None


def test_side_information_that_a_round_lacks_is_named(tmp_path, synthetic_round):
    for index in range(3):
        save_round(tmp_path, index, replace(synthetic_round(index), bs_indices=None))
    with pytest.raises(ConfigError, match=r"side_information is on, but .*round_00000.* has neither"):
        load_rounds([tmp_path], RoundsSettings(side_information=True), seed=0)


def test_rounds_take_turns():
    slots = [torch.arange(40), torch.arange(8), torch.arange(24)]
    plan = blocks(slots, 8, rng=torch.Generator().manual_seed(0))
    numbers = [number for number, _ in plan]
    assert sorted(numbers[:3]) == [0, 1, 2]
    assert sorted(numbers[3:5]) == sorted(numbers[5:7]) == [0, 2]
    assert numbers[7:] == [0, 0]
    orders = {tuple(n for n, _ in blocks(slots, 8, rng=torch.Generator().manual_seed(s))[:3]) for s in range(20)}
    assert len(orders) > 3, "in random order"


def test_batches_have_every_number_of_devices_those_about_the_geometric_mean_most_often():
    saved = plain_round(num_active=16)
    settings = RoundsSettings(devices_low=1, devices_high=16)
    numbers = [
        len(vary(saved, torch.arange(5), settings, rng=torch.Generator().manual_seed(s))[0].indices) for s in range(400)
    ]
    assert (min(numbers), max(numbers)) == (1, 16)
    assert sum(3 <= number <= 6 for number in numbers) > sum(number < 3 for number in numbers)
    # of 400 draws half are below the geometric mean, give or take three standard deviations of ten
    assert abs(sum(number < 4 for number in numbers) - 200) < 60


def test_some_devices_of_a_round_are_as_if_the_others_had_not_sent(tmp_path, synthetic_round):
    save_round(tmp_path, 0, synthetic_round(0))
    for number in (1, 2):
        save_round(tmp_path, number, synthetic_round(number))
    saved = load_rounds([tmp_path], RoundsSettings(side_information=True), seed=0).train[0]
    some = saved.of(torch.tensor([1, 0]))
    assert torch.equal(some.indices, saved.indices[[1, 0]])
    assert some.mean_fragments is None
    (group, *_), (whole, *_) = some.groups.values(), saved.groups.values()
    assert torch.equal(group.of, whole.of)
    assert float(group.sums.sum()) == 2 * saved.num_slots


def test_drawn_choices_follow_the_popularity_most_popular_first():
    drawn = zipf_round(plain_round(num_active=40), 200, rng=torch.Generator().manual_seed(3))
    assert drawn.indices.shape == (40, 200)
    assert (drawn.popularity.diff() <= 0).all()
    shares = count(drawn.indices, 16).double().mean(0) / 40
    # 8,000 draws for the devices, 4,096 for the base station
    torch.testing.assert_close(shares.float(), drawn.popularity, atol=0.04, rtol=0)


def test_a_share_of_the_batches_is_drawn(tmp_path):
    saved, settings = plain_round(num_active=4), RoundsSettings(zipf=0.5)
    drawn = [
        vary(saved, torch.arange(5), settings, rng=torch.Generator().manual_seed(s))[0] is not saved for s in range(100)
    ]
    assert 30 < sum(drawn) < 70


def test_rounds_are_quantised_anew_for_another_number_of_codewords(collection):
    split = load_rounds([collection], RoundsSettings(num_codewords=4), seed=0)
    assert {len(saved.popularity) for saved in split.train} == {4}
    assert all(int(saved.indices.max()) < 4 for saved in split.train)


def test_a_batch_knows_the_shares_that_its_round_tells(tmp_path, synthetic_round):
    for index in range(3):
        save_round(tmp_path, index, synthetic_round(index))
    loaded = load_rounds([tmp_path], RoundsSettings(side_information=True), seed=0).train[0]
    chosen = count(loaded.indices.long(), 16).sum(0) + 1.0
    chosen, slots = chosen / chosen.sum(), torch.arange(4)
    deaf, clear = (make_batch(loaded, slots, snr_db, "round").shares for snr_db in (-40.0, 60.0))
    torch.testing.assert_close(clear, chosen, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(deaf, smooth(loaded.popularity.double(), 60).float(), rtol=1e-2, atol=1e-4)
