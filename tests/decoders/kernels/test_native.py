"""The compiled kernels compute what torch's operations do, which other tests compare with plain tables."""

import math
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.common import arithmetic
from aircomp.common.rng import generator
from aircomp.decoders.amp.amp_da import AmpDa
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.amp.prior import poisson_posterior, reach_for
from aircomp.decoders.amp.steps import PreparedCodebook, iterate, start
from aircomp.decoders.kernels import native
from aircomp.decoders.net.amp_da_net import AmpDaNet, AmpDaNetDecoder
from aircomp.decoders.net.blocks import Scalars, initial_belief, net_layer, run_layer
from aircomp.decoders.net.cnn import Cnn, Workspace
from aircomp.decoders.net.gamp_net import GampNet, GampNetDecoder
from aircomp.decoders.net.tempered import CountTable
from aircomp.decoders.settings import AmpDaNetSettings, AmpDaSettings, GampNetSettings
from aircomp.encode.codebook import make_codebook
from helpers.draws import zipf_round

pytestmark = pytest.mark.skipif(arithmetic.kernels() is None, reason="the package was installed without a C compiler")


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


CLASSES = ["baseline", "avx2", "avx512"]
OWN = None if arithmetic.kernels() is None else arithmetic.Kernels(arithmetic.LIBRARY).variant
VARIANTS = CLASSES[: CLASSES.index(OWN) + 1] if OWN else CLASSES
"""Classes of processors that this one belongs to."""


WIDE = 200
"""Counts that may be summed: enough for all that weigh anything, so that neighbouring modes give the same sums."""


@contextmanager
def kernels_of(variant):
    """Compute with the kernels for a class of processors."""
    with pytest.MonkeyPatch.context() as patch:
        kernels = arithmetic.Kernels(arithmetic.LIBRARY, variant)
        patch.setattr(arithmetic, "_kernels", lambda: kernels)
        assert native.ready(torch.ones(1))
        yield


def both(variant, function, *args, **kwargs):
    """Return what the kernels for a class of processors find and what torch does."""
    with kernels_of(variant):
        found = function(*args, **kwargs)
    with arithmetic.switched_off():
        return found, function(*args, **kwargs)


def draw(seed: int, slots: int, codewords: int, width: float, devices: float, *, own: bool):
    """Return pseudo-observations of counts, their variances around a width, and the rates."""
    rng = generator(seed, "native")
    rate = torch.rand(slots if own else 1, codewords, generator=rng) ** 4 + 1e-6
    rate = devices * rate / rate.sum(1, keepdim=True)
    V = width * torch.exp(0.5 * torch.randn(slots, codewords, generator=rng))
    x = torch.poisson(rate.expand(slots, codewords), generator=rng)
    return x + V.sqrt() * torch.randn(slots, codewords, generator=rng), V, rate


rounds = {
    "seed": st.integers(0, 10**6),
    "slots": st.integers(1, 6),
    "codewords": st.integers(1, 70),
    "width": st.floats(-4, 1.5).map(lambda e: 10**e),
    "devices": st.floats(-1, 2).map(lambda e: 10**e),
    "own": st.booleans(),
}
variants = st.sampled_from(VARIANTS)


@settings(max_examples=200, deadline=None)
@given(variant=variants, agreement=st.sampled_from([0.0, 0.001, 0.03, 0.3]), **rounds)
def test_posterior_moments_are_torchs(variant, agreement, **drawn):
    R, V, rate = draw(**drawn)
    reach = reach_for(2 * float(V.max()), max_count=WIDE)
    found, expected = both(variant, poisson_posterior, R, V, rate, reach=reach, agreement=agreement)
    for ours, theirs in zip(found, expected, strict=True):
        # a variance is a difference of squares of the distance from the mode, of up to `reach` counts
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=3e-6 * (1 + reach**2 / 20))


@pytest.mark.parametrize("variant", VARIANTS)
def test_slots_that_say_nothing_are_as_torch_has_them(variant):
    R = torch.tensor([[0.0, -1e9, 1e9, 5.0, 0.3]])
    V = torch.tensor([[1e-8, 1e-3, 1e-3, 1e30, 1.0]])
    rate = torch.tensor([[0.1, 1.0, 1.0, 1.0, 0.0]])
    for agreement in (0.0, 0.03):
        found, expected = both(variant, poisson_posterior, R.clamp(max=1e5), V, rate, reach=8, agreement=agreement)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_what_is_no_number_stays_none_and_harms_no_neighbour():
    R, V, rate = draw(3, 1, 16, 0.3, 10, own=False)
    expected = poisson_posterior(R, V, rate, reach=9)[0]
    R[0, 5] = math.nan
    found = poisson_posterior(R, V, rate, reach=9)[0]
    assert found[0, 5].isnan()
    others = torch.arange(16) != 5
    torch.testing.assert_close(found[:, others], expected[:, others])
    y = torch.randn(2, 12, generator=generator(3, "signal"))
    y[1, 4] = math.nan
    s, _ = run(1, 8, 0, y, 0.3 * torch.randn(16, 12, generator=generator(4, "codebook")), rate, own=False)
    assert s.x_hat[1].isnan().any()
    assert not s.x_hat[0].isnan().any()


def layer_of(kernel: int, filters: int, seed: int) -> tuple[Scalars, Cnn]:
    rng = generator(seed, "cnn")
    cnn = Cnn(filters, kernel, rng=rng)
    cnn.weight_out.copy_(torch.randn(cnn.weight_out.shape, generator=rng))
    return Scalars(*torch.tensor([1.1, 0.1, 0.9, 1.3, 0.8, 0.1, 0.1, 0.1])), cnn


def run(kernel: int, filters: int, seed: int, y, codebook, rate, *, own: bool):
    """Run a layer from the state that the prior leaves."""
    scalars, cnn = layer_of(kernel, filters, seed)
    table = CountTable.of(30, math.ceil(2 * float(rate.sum(1).max())) + 8, y)
    compiled = net_layer(scalars, table, cnn) if native.ready(y) else None
    belief, book = initial_belief(rate, torch.full((len(y),), 0.1), own_rates=own), PreparedCodebook.of(codebook)
    options = {"book": book, "k": scalars, "table": table, "cnn": cnn, "compiled": compiled, "workspace": Workspace()}
    s, evidence = run_layer(start(y, rate), y, belief, **options)
    s = replace(s, z=s.z + 0.1)  # the second layer has a residual to correct for
    return run_layer(s, y, belief, **options)[0], evidence


@settings(max_examples=150, deadline=None)
@given(
    variant=variants,
    kernel=st.sampled_from([1, 3, 5]),
    filters=st.sampled_from([1, 3, 8, 16, 19]),
    uses=st.integers(20, 50),
    slots=st.integers(1, 40),
    own=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_a_layer_is_torchs_whatever_sizes_and_strides(variant, kernel, filters, uses, slots, own, seed):
    y, codebook, rate = noisy_sums(seed, slots, uses, own=own)
    (s, told), (torchs, expected) = both(variant, run, kernel, filters, seed, y, codebook, rate, own=own)
    # rounding of the first layer passes the CNN, whose weights are of size one, and the second layer
    torch.testing.assert_close(vars(s), vars(torchs), rtol=2e-4, atol=2e-4)
    torch.testing.assert_close(vars(told), vars(expected), rtol=1e-4, atol=1e-4 * slots)


def noisy_sums(seed: int, slots: int, uses: int, *, own: bool):
    """Return received slots, codebook, neither side by side in memory, and rates."""
    rng = generator(seed, "sums")
    codebook = torch.nn.functional.normalize(torch.randn(uses, 37, generator=rng), dim=0).T
    rate = 4 * torch.softmax(torch.randn(slots if own else 1, 37, generator=rng), dim=1)
    y = torch.poisson(rate.expand(slots, 37), generator=rng) @ codebook + 0.3 * torch.randn(slots, uses, generator=rng)
    return y.T.contiguous().T, codebook, rate


@settings(max_examples=60, deadline=None)
@given(
    variant=variants,
    uses=st.integers(20, 50),
    slots=st.integers(1, 40),
    own=st.booleans(),
    agreement=st.sampled_from([0.0, 0.03]),
    seed=st.integers(0, 1000),
)
def test_iterations_are_torchs_whatever_sizes_and_strides(variant, uses, slots, own, agreement, seed):
    y, codebook, rate = noisy_sums(seed, slots, uses, own=own)
    options = {"iterations": 2, "reach": 12, "agreement": agreement}
    found, expected = both(variant, iterate, y, PreparedCodebook.of(codebook), y.new_full((1, 1), 0.1), rate, **options)
    for ours, theirs in zip(vars(found).values(), vars(expected).values(), strict=True):
        torch.testing.assert_close(
            ours, theirs, rtol=1e-4, atol=1e-4
        )  # a second iteration magnifies the first's rounding


@cache
def decoded_by_torch(name: str, snr_db: float):
    """Return what decodes a round, and what torch finds, which is the same for all classes of processors."""
    codebook = make_codebook("two-bases", 128, 64, rng=generator(0, "codebook"))
    net = GampNet(GampNetSettings(num_layers=4, filters=8, kernel=3 if name == "kernel of three" else 1))
    for cnn in net.cnn:
        cnn.weight_out.copy_(0.1 * torch.randn(cnn.weight_out.shape, generator=generator(1, "weights")))
    decoder = Gamp(codebook) if name == "gamp" else GampNetDecoder(net, codebook)
    received, popularity, *_ = zipf_round(600, 10, snr_db, codebook)
    with arithmetic.switched_off():
        return partial(decoder.decode, received, popularity), decoder.decode(received, popularity)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("snr_db", [0.0, 10.0])
@pytest.mark.parametrize("name", ["gamp", "gamp-net", "kernel of three"])
def test_rounds_are_decoded_as_torch_does(variant, name, snr_db):
    decode, expected = decoded_by_torch(name, snr_db)
    with kernels_of(variant):
        found = decode()
    torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=2e-5)  # through up to ten iterations
    assert torch.equal(found.counts, expected.counts)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("codewords", [37, 128])
@pytest.mark.parametrize("form", ["paper", "authors"])
def test_the_papers_network_is_torchs(variant, form, codewords):
    codebook = make_codebook("gaussian", codewords, 30, rng=generator(0, "codebook"))
    settings = AmpDaNetSettings(form=form, num_layers=3, filters=7, kernel=5)
    decoder = AmpDaNetDecoder(AmpDaNet(settings).requires_grad_(False), codebook)
    received, popularity, *_ = zipf_round(300, 10, 5.0, codebook)
    found, expected = both(variant, decoder.decode, received, popularity)
    torch.testing.assert_close(found.mean, expected.mean, rtol=0, atol=5e-5)  # through three layers
    torch.testing.assert_close(found.noise_var, expected.noise_var, rtol=1e-4, atol=0)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("given", [False, True])
def test_amp_da_is_torchs(variant, kind, given):
    codebook = make_codebook(kind, 100, 60, rng=generator(0, "codebook"))
    received, popularity, *_ = zipf_round(150, 10, 10.0, codebook)
    noise = 0.2 if given else None
    decoder = AmpDa(codebook, AmpDaSettings(max_iterations=8))  # later ones magnify rounding where a batch is unsure
    found, expected = both(variant, decoder.decode, received, popularity, noise_var=noise)
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.noise_var, expected.noise_var, rtol=1e-3, atol=0)


def test_a_slot_has_the_same_bits_wherever_it_lies():
    R, V, rate = draw(0, 40, 37, 0.3, 10, own=False)
    whole = poisson_posterior(R, V, rate, reach=9, agreement=0.03)
    parts = [poisson_posterior(R[i : i + 7], V[i : i + 7], rate, reach=9, agreement=0.03) for i in range(0, 40, 7)]
    assert all(torch.equal(w, torch.cat(p)) for w, p in zip(whole, zip(*parts, strict=True), strict=True))


def test_gradients_other_types_and_other_shapes_stay_with_torch():
    single = torch.ones(2, 3)
    assert native.serves(single, single, single[:1])
    assert not native.serves(single, single, torch.ones(1, 1))
    assert not native.serves(single, torch.ones(1, 3))
    assert not native.ready(single.double())
    assert not native.ready(single.to("meta"))
    with torch.enable_grad():
        assert not native.ready(single)
