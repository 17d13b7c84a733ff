import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sklearn.cluster import kmeans_plusplus as sklearn_kmeans_plusplus

from aircomp.errors import ConfigError, ShapeError
from aircomp.quantize.codebook import Quantizer, _lloyd, build, codeword_order, kmeans_plus_plus, nearest
from aircomp.quantize.settings import QuantizeSettings
from helpers.draws import seeded, update_like
from plain import quantize as plain


def inertia(points: torch.Tensor, codebook: torch.Tensor) -> float:
    distances = torch.cdist(points.double(), codebook.double(), compute_mode="donot_use_mm_for_euclid_dist")
    return float(distances.min(dim=1).values.square().sum())


def small(**changes: object) -> QuantizeSettings:
    return QuantizeSettings.parse({"fragment_length": 5, "num_codewords": 16, **changes})


def test_the_defaults_are_those_of_the_paper():
    settings = QuantizeSettings()
    assert (settings.fragment_length, settings.num_codewords, settings.order) == (20, 128, "popularity")
    assert (settings.lloyd_iterations, settings.curvature_aware) == (0, False)


# --- seeding


@pytest.mark.parametrize("seed", range(5))
def test_the_fast_seeding_equals_the_plain_one(seed: int):
    # Dense points: between two lonely neighbours, either of which covers the other, rounding would decide.
    points = torch.randn(400, 3, generator=seeded(seed))
    draws = torch.rand(16, 4, dtype=torch.float64, generator=seeded(100 + seed))
    assert torch.equal(kmeans_plus_plus(points, draws), plain.kmeans_plus_plus(points, draws))


def test_seeds_spread_as_well_as_those_of_scikit_learn():
    ratios = []
    for seed in range(5):
        fragments = update_like(3000, seed=seed)
        ours = build(fragments, QuantizeSettings(), rng=seeded(seed)).codebook
        theirs, _ = sklearn_kmeans_plusplus(fragments.double().numpy(), 128, random_state=seed)
        ratios.append(inertia(fragments, ours) / inertia(fragments, torch.from_numpy(theirs)))
    # one draw scatters by about 1 %; seeds drawn uniformly come out near 3.7
    assert 0.95 < sum(ratios) / len(ratios) < 1.05


@hypothesis_settings(deadline=None, max_examples=50)
@given(num_distinct=st.integers(1, 40), repeats=st.integers(1, 5), offset=st.sampled_from([0.0, 1.0, 1e3]))
def test_seeds_are_distinct_while_distinct_points_remain(num_distinct: int, repeats: int, offset: float):
    grid = torch.cartesian_prod(torch.arange(7.0), torch.arange(7.0))[:num_distinct] + offset
    points = grid.repeat(repeats, 1)
    seeds = kmeans_plus_plus(points, torch.rand(16, 4, dtype=torch.float64, generator=seeded(num_distinct)))
    assert len(seeds) == min(16, num_distinct)
    assert len(points[seeds].unique(dim=0)) == len(seeds)


def test_a_draw_of_exactly_zero_skips_points_that_are_covered():
    points = torch.tensor([[0.0], [0.0], [1.0], [2.0]])  # the first seed is row 0, so no distance is left at the start
    assert sorted(kmeans_plus_plus(points, torch.zeros(3, 2, dtype=torch.float64)).tolist()) == [0, 2, 3]


def test_close_points_far_from_the_origin_are_told_apart():
    points = 1.0 + 1e-5 * torch.arange(32.0)[:, None] * torch.ones(4)  # their squares agree to float32 rounding
    seeds = kmeans_plus_plus(points, torch.rand(32, 4, dtype=torch.float64, generator=seeded()))
    assert sorted(seeds.tolist()) == list(range(32))


def test_many_zero_fragments_take_one_codeword():
    fragments = torch.zeros(1000, 5)
    fragments[::20] = update_like(50, 5)
    quantizer = build(fragments, small(num_codewords=51), rng=seeded())
    assert (quantizer.codebook == 0).all(dim=1).sum() == 1
    assert (quantizer.codebook[0] == 0).all()  # by far the most popular
    assert len(quantizer.codebook.unique(dim=0)) == 51


# --- popularity and order


@pytest.mark.parametrize("order", ["popularity", "none", "cosine"])
@pytest.mark.parametrize("lloyd_iterations", [0, 2])
@pytest.mark.parametrize("curvature_aware", [False, True])
def test_indices_and_popularity_belong_to_the_ordered_codebook(
    order: str, lloyd_iterations: int, curvature_aware: bool
):
    fragments = update_like(800, 5)
    settings = small(order=order, lloyd_iterations=lloyd_iterations, curvature_aware=curvature_aware)
    quantizer = build(fragments, settings, rng=seeded())
    assert torch.equal(quantizer.base_indices, nearest(fragments, quantizer.codebook))
    counted = torch.bincount(quantizer.base_indices, minlength=16) / 800
    torch.testing.assert_close(quantizer.popularity, counted, rtol=0, atol=1e-7)  # one division in float32
    assert quantizer.codebook.dtype == quantizer.popularity.dtype == torch.float32


def test_popular_codewords_come_first():
    popularity = build(update_like(800, 5), small(), rng=seeded()).popularity
    assert (popularity.diff() <= 0).all()
    assert popularity[0] > popularity[-1]


def test_equally_popular_codewords_keep_the_order_of_seeding():
    fragments = update_like(100, 5)  # each its own codeword
    by_popularity = build(fragments, small(num_codewords=100), rng=seeded())
    as_seeded = build(fragments, small(num_codewords=100, order="none"), rng=seeded())
    assert (as_seeded.popularity == as_seeded.popularity[0]).all()
    assert torch.equal(by_popularity.codebook, as_seeded.codebook)


def test_the_orders_hold_the_same_codewords():
    fragments = update_like(800, 5)
    books = [build(fragments, small(order=o), rng=seeded()).codebook for o in ("popularity", "none", "cosine")]
    assert not torch.equal(books[0], books[1])
    assert not torch.equal(books[1], books[2])
    for book in books[1:]:
        assert torch.equal(book.unique(dim=0), books[0].unique(dim=0))


def test_no_order_is_the_order_of_seeding():
    fragments = update_like(800, 5)
    codebook = build(fragments, small(order="none"), rng=seeded()).codebook
    draws = torch.rand(16, 4, dtype=torch.float64, generator=seeded())
    assert torch.equal(codebook, fragments[kmeans_plus_plus(fragments * 2.0**10, draws)])  # 2^10 rounds nothing


def fan(*degrees: float) -> torch.Tensor:
    """Directions in a plane: the more similar, the smaller the angle between them."""
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1).float()


@pytest.mark.parametrize("popular", [0, 8])
def test_seriation_finds_a_chain_again_from_the_end_of_the_most_popular(popular: int):
    chain = fan(*range(0, 90, 10)) * torch.arange(1, 10)[:, None]  # lengths do not matter
    shuffled = torch.randperm(9, generator=seeded())
    tally = torch.zeros(9)
    tally[torch.argsort(shuffled)[popular]] = 5
    found = shuffled[codeword_order(chain[shuffled], tally, "cosine")]
    assert found.tolist() == (list(range(9)) if popular == 0 else list(range(8, -1, -1)))


def test_seriation_puts_groups_side_by_side_and_zero_last():
    book = torch.cat([fan(0, 80, 4, 84, 8, 88), torch.zeros(1, 2)])[[6, 0, 1, 2, 3, 4, 5]]
    order = codeword_order(book, torch.tensor([9.0, 1, 0, 0, 0, 0, 0]), "cosine").tolist()
    assert order[-1] == 0
    assert {frozenset(order[:3]), frozenset(order[3:6])} == {frozenset({1, 3, 5}), frozenset({2, 4, 6})}


def test_codewords_that_are_all_alike_or_all_opposed_keep_their_order():
    assert codeword_order(torch.zeros(3, 2), torch.zeros(3), "cosine").tolist() == [0, 1, 2]
    assert codeword_order(fan(0, 180), torch.zeros(2), "cosine").tolist() == [0, 1]


# --- Lloyd and curvature


def test_lloyd_iterations_lower_the_inertia():
    fragments = update_like(800, 5)
    steps = [build(fragments, small(lloyd_iterations=i), rng=seeded()).codebook for i in (0, 1, 5)]
    values = [inertia(fragments, codebook) for codebook in steps]
    assert values[0] > values[1] > values[2]


def test_after_lloyd_every_codeword_is_the_mean_of_its_fragments():
    fragments = torch.cat([torch.zeros(4, 5), torch.ones(4, 5)]) + 0.01 * update_like(8, 5)
    quantizer = build(fragments, small(num_codewords=2, lloyd_iterations=3), rng=seeded())
    for i in range(2):
        mean = fragments[quantizer.base_indices == i].mean(dim=0)
        torch.testing.assert_close(quantizer.codebook[i], mean, rtol=1e-6, atol=1e-9)  # a float32 sum of four


def test_a_codeword_that_lost_all_its_fragments_stays_where_it_is():
    fragments = torch.tensor([[0.0], [1.0], [1.0]])
    codebook = torch.tensor([[0.0], [1.0], [9.0]])
    moved = _lloyd(fragments, codebook, lambda u: u, iterations=2)
    assert moved.tolist() == [[0.0], [1.0], [9.0]]


@pytest.mark.parametrize("lloyd_iterations", [0, 3])
def test_curvature_aware_codewords_are_those_of_the_scaled_space_mapped_back(lloyd_iterations: int):
    fragments = update_like(800, 5) * torch.tensor([1.0, 10.0, 0.1, 1.0, 3.0]) + 2e-4
    mean, variance = fragments.mean(dim=0), fragments.var(dim=0, correction=0)
    weight = 1 / (variance + 1e-6 * variance.max()).sqrt()
    settings = small(order="none", lloyd_iterations=lloyd_iterations)
    scaled = build((fragments - mean) * weight, settings, rng=seeded())
    aware = build(fragments, settings.changed(curvature_aware=True), rng=seeded())
    # entries reach 1e-2 and float32 rounds them to 1e-9; there and back is a handful of roundings
    torch.testing.assert_close(aware.codebook, scaled.codebook / weight + mean, rtol=1e-5, atol=1e-8)
    blind = build(fragments, settings, rng=seeded())
    assert not torch.allclose(aware.codebook, blind.codebook)


def test_curvature_awareness_serves_directions_of_low_variance():
    fragments = torch.randn(2000, 5, generator=seeded()) * torch.tensor([1.0, 1.0, 1.0, 1.0, 0.05])
    error = {}
    for aware in (False, True):
        quantizer = build(fragments, small(num_codewords=64, curvature_aware=aware), rng=seeded())
        scaled = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.05])
        error[aware] = inertia(fragments / scaled, quantizer.codebook / scaled)
    assert error[True] < error[False]


# --- odd input


def check_copies(quantizer: Quantizer, fragments: torch.Tensor, num_distinct: int) -> None:
    assert torch.equal(quantizer.codebook[num_distinct:], quantizer.codebook[:1].expand(16 - num_distinct, -1))
    assert (quantizer.popularity[:num_distinct] > 0).all()
    assert (quantizer.popularity[num_distinct:] == 0).all()
    assert torch.equal(quantizer.codebook[quantizer.base_indices], fragments)  # nothing is lost
    assert torch.equal(nearest(fragments, quantizer.codebook), quantizer.base_indices)


@pytest.mark.parametrize("order", ["popularity", "none", "cosine"])
@pytest.mark.parametrize("curvature_aware", [False, True])
@pytest.mark.parametrize("num_distinct", [1, 2, 7])
def test_codewords_beyond_the_distinct_fragments_are_never_chosen(order: str, curvature_aware: bool, num_distinct: int):
    fragments = update_like(num_distinct, 5)[torch.arange(100) % num_distinct]
    quantizer = build(fragments, small(order=order, curvature_aware=curvature_aware), rng=seeded())
    check_copies(quantizer, fragments, num_distinct)


@pytest.mark.parametrize("value", [0.0, 1.0, -3e-5, 1e-30, 1e-42, 1e30])
@pytest.mark.parametrize("curvature_aware", [False, True])
def test_constant_updates_take_one_codeword(value: float, curvature_aware: bool):
    fragments = torch.full((50, 5), value)
    settings = small(curvature_aware=curvature_aware, lloyd_iterations=1 if value == 0 else 0)
    quantizer = build(fragments, settings, rng=seeded())
    check_copies(quantizer, fragments, 1)
    assert quantizer.popularity[0] == 1


def test_a_single_fragment_is_enough():
    fragments = update_like(1, 5)
    check_copies(build(fragments, small(curvature_aware=True), rng=seeded()), fragments, 1)


def test_the_unit_of_the_update_does_not_matter():
    fragments = update_like(400, 5)
    for scale in (2.0**-80, 2.0**60):
        scaled = build(fragments * scale, small(), rng=seeded())
        plain_unit = build(fragments, small(), rng=seeded())
        assert torch.equal(scaled.codebook, plain_unit.codebook * scale)  # powers of two round nothing
        assert torch.equal(scaled.base_indices, plain_unit.base_indices)


def test_the_same_generator_gives_the_same_codebook_and_another_does_not():
    fragments = update_like(400, 5)
    first, again, other = (build(fragments, small(), rng=seeded(s)).codebook for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_update_is_not_changed():
    fragments = update_like(400, 5)
    before = fragments.clone()
    build(fragments, small(lloyd_iterations=2, curvature_aware=True), rng=seeded())
    assert torch.equal(fragments, before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_refused(bad: float):
    fragments = update_like(40, 5)
    fragments[3, 2] = bad
    with pytest.raises(ShapeError, match="fragments holds values that are not finite"):
        build(fragments, small(), rng=seeded())


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("shape", [(0, 5), (10, 4), (10,), (2, 10, 5)])
def test_fragments_of_another_shape_are_refused(shape: tuple[int, ...]):
    with pytest.raises(ShapeError, match=r"expected \[slots, 5\] with at least one slot"):
        build(torch.zeros(shape), small(), rng=seeded())


@pytest.mark.parametrize(
    "wrong",
    [
        {"fragment_length": 0},
        {"num_codewords": 1},
        {"num_codewords": 32768},
        {"order": "random"},
        {"lloyd_iterations": -1},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, object]):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        QuantizeSettings.parse(wrong)
