import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from aircomp.decoders.amp import amp_da as module
from aircomp.decoders.amp.amp_da import AmpDa, Book, settle, start, step
from aircomp.decoders.heard import exact_counts, noise_per_slot
from aircomp.decoders.settings import AmpDaSettings
from aircomp.encode.codebook import count
from aircomp.errors import ConfigError, ShapeError
from aircomp.testing import check_decoder
from helpers.draws import accuracy, add_noise, draw_indices, seeded
from plain.amp_da import amp_da as plain_amp_da

NUM_CODEWORDS, LENGTH = 128, 64
REFERENCE = Path(__file__).parents[1] / "reference"
"""Numbers of the authors' code, all slots in one batch; see the README there."""
TOLERANCE = {"float32": 2e-5, "float64": 1e-10}


def bernoulli(rng, num_codewords=NUM_CODEWORDS, length=LENGTH):
    return (2.0 * torch.randint(0, 2, (num_codewords, length), generator=rng) - 1) / math.sqrt(length)


def gaussian(rng, num_codewords=NUM_CODEWORDS, length=LENGTH):
    return torch.nn.functional.normalize(torch.randn(num_codewords, length, generator=rng))


def draw_round(codebook, num_slots, snr_db, rng, num_active=10):
    """Zipf-1 popularity, noise in proportion to each slot's own power."""
    popularity = 1 / torch.arange(1, len(codebook) + 1)
    counts = count(draw_indices(popularity, num_slots, num_active, rng=rng), len(codebook))
    received, noise_var = add_noise(counts, codebook, snr_db, reference="slot", rng=rng)
    return received, popularity / popularity.sum(), counts, noise_var


@pytest.mark.seconds
def test_it_has_the_properties_of_a_decoder():
    check_decoder(AmpDa)


# ---- the authors' numbers ----


@pytest.fixture(params=TOLERANCE)
def authors(request):
    """Inputs of the authors' run in one precision, what it gave, and how close is equal."""
    inputs, dtype = load_file(REFERENCE / "inputs.safetensors"), getattr(torch, request.param)
    given = {name: value.to(dtype) for name, value in inputs.items()}
    return given, load_file(REFERENCE / f"amp_da_{request.param}.safetensors"), TOLERANCE[request.param]


def assert_equal(found, expected, atol, rtol=0.0):
    found = found.double().reshape(-1)[: expected.numel()]  # some slots of all
    torch.testing.assert_close(found, expected.double().reshape(-1), rtol=rtol, atol=atol)


def test_batches_end_as_the_authors_do(authors):
    given, theirs, atol = authors
    found = settle(given["received"][None], Book.of(given["codebook"]), AmpDaSettings())
    assert found.iterations.tolist() == theirs["iterations"].tolist() == [16]
    for name in ("x_hat", "alpha", "sigma2"):
        assert_equal(getattr(found, name), theirs[name], atol)
    assert_equal(found.x_hat.sum(2), theirs["k_of_slot"], 3 * atol)  # a sum of many rounding errors


def test_iterations_are_the_authors(authors):
    given, theirs, atol = authors
    y, book = given["received"][None], Book.of(given["codebook"])
    s = start(y, book)
    assert_equal(s.alpha, theirs["alpha_start"], atol)
    assert_equal(s.x_hat, theirs["x_start"], atol)
    residual, sigma2, alpha = [], [], []
    for t in range(1, 17):
        s = step(s, y, book, 0.3)
        residual.append(s.residual)
        sigma2.append(s.sigma2)
        alpha.append(s.alpha)
        for name in ("x_hat", "nu", "z", "v"):
            if f"after_{t}.{name}" in theirs:
                # variances start at up to 28, where their own float32 is 4e-5 off their float64
                assert_equal(getattr(s, name), theirs[f"after_{t}.{name}"], atol, rtol=atol / 10 if name == "nu" else 0)
    assert_equal(torch.stack(residual), theirs["iteration.residual"], atol)
    assert_equal(torch.stack(sigma2), theirs["iteration.sigma2"], atol)
    assert_equal(torch.stack(alpha), theirs["iteration.alpha"], atol)


def test_a_round_in_one_batch_is_the_authors_round(authors):
    given, theirs, atol = authors
    decoder = AmpDa(given["codebook"], AmpDaSettings(batch_slots=96))
    decoded = decoder.decode(given["received"], given["popularity"])
    assert decoded.mean.dtype == given["received"].dtype
    assert_equal(decoded.mean, theirs["x_hat"], atol)
    assert decoded.num_active_hat == pytest.approx(theirs["k_hat"].item(), abs=atol)
    assert_equal(decoded.noise_var, theirs["sigma2"].expand(96), atol)
    # no slot is nearer than 5e-4 to other integers
    greedy = load_file(REFERENCE / "amp_da_float32.safetensors")["counts_greedy"]
    assert torch.equal(decoded.counts, greedy.to(decoded.counts))


# ---- fast is plain ----


@pytest.mark.parametrize("draw_codebook", [bernoulli, gaussian])
@pytest.mark.parametrize(
    ("seed", "snr_db", "noise_var", "options"),
    [
        (0, 12.0, None, {}),
        (1, 5.0, None, {}),
        (2, 5.0, None, {"damping": 0.0, "max_iterations": 3}),
        (3, 20.0, None, {"batch_slots": 1}),
        (4, 5.0, 0.05, {"batch_slots": 100}),
        (5, 12.0, torch.linspace(0.01, 0.3, 11), {}),
    ],
)
def test_fast_equals_plain(draw_codebook, seed, snr_db, noise_var, options, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 8)
    rng, options = seeded(seed), {"batch_slots": 4} | options
    codebook = draw_codebook(rng, 24, 16).double()
    received, popularity, *_ = draw_round(codebook.float(), 11, snr_db, rng, num_active=3)  # the last batch is shorter
    received = received.double()
    per_slot = None if noise_var is None else torch.as_tensor(noise_var, dtype=torch.float64).expand(11)
    mean, noise = plain_amp_da(received, codebook, noise_var=per_slot, **options)
    decoded = AmpDa(codebook, AmpDaSettings(**options)).decode(received, popularity, noise_var=noise_var)
    # the same formulas in double precision; where the activity is near one, few digits of the distance to it are left
    torch.testing.assert_close(decoded.mean, mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(decoded.noise_var, noise, rtol=0, atol=1e-6)


def test_single_precision_follows_double_where_activity_comes_near_one(rng):
    # as many uses as codewords: activity starts near one, where the authors' float32 stays, at 13 devices in place of 6
    codebook = bernoulli(rng, 64, 64)
    received, popularity, counts, _ = draw_round(codebook, 64, 10.0, rng, num_active=6)
    single = AmpDa(codebook).decode(received, popularity)
    double = AmpDa(codebook.double()).decode(received.double(), popularity)
    torch.testing.assert_close(single.mean, double.mean.float(), rtol=0, atol=1e-5)
    assert torch.equal(single.counts, counts)


# ---- batches ----


@pytest.mark.seconds
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(num_slots=st.integers(1, 12), batch_slots=st.integers(1, 5), chunk=st.integers(1, 13), seed=st.integers(0, 999))
def test_how_many_batches_are_computed_together_changes_nothing(num_slots, batch_slots, chunk, seed):
    rng = seeded(seed)
    codebook = (bernoulli if seed % 2 else gaussian)(rng, 24, 16)
    received, popularity, *_ = draw_round(codebook, num_slots, 8.0, rng, num_active=3)
    received, codebook = received.double(), codebook.double()
    decoder = AmpDa(codebook, AmpDaSettings(batch_slots=batch_slots))
    together = decoder.decode(received, popularity)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        apart = decoder.decode(received, popularity)
    # torch may sum the numbers of a batch in another order
    torch.testing.assert_close(together.mean, apart.mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(together.noise_var, apart.noise_var, rtol=0, atol=1e-6)


def test_each_batch_is_decoded_as_if_it_were_alone(rng):
    codebook = bernoulli(rng)
    received, popularity, *_ = draw_round(codebook, 200, 10.0, rng)
    decoder = AmpDa(codebook)
    whole = decoder.decode(received, popularity)
    parts = [decoder.decode(part, popularity) for part in received.split(64)]
    assert len({part.noise_var[0].item() for part in parts}) == 4
    torch.testing.assert_close(whole.mean, torch.cat([part.mean for part in parts]), rtol=0, atol=1e-6)
    torch.testing.assert_close(whole.noise_var, torch.cat([part.noise_var for part in parts]), rtol=0, atol=1e-6)


def test_batches_end_one_by_one(rng):
    codebook = bernoulli(rng)
    received, *_ = draw_round(codebook, 320, 5.0, rng)
    book, y = Book.of(codebook), received.view(5, 64, LENGTH)
    found = settle(y, book, AmpDaSettings())
    assert found.iterations.min() >= 16
    assert len(set(found.iterations.tolist())) > 1
    for i in range(5):
        alone = settle(y[i : i + 1], book, AmpDaSettings())
        assert alone.iterations.item() == found.iterations[i].item()
        torch.testing.assert_close(alone.alpha[0], found.alpha[i], rtol=0, atol=1e-6)


def test_it_is_told_neither_popularity_nor_number(rng):
    codebook = bernoulli(rng)
    received, popularity, *_ = draw_round(codebook, 70, 10.0, rng)
    decoder = AmpDa(codebook)
    usual = decoder.decode(received, popularity)
    told = decoder.decode(received, popularity.flip(0), num_active=30)
    assert torch.equal(usual.mean, told.mean)
    assert told.counts.sum(1).unique().tolist() == [30]


# ---- how well it decodes ----


def test_it_decodes_well_at_high_snr_and_collapses_at_low(rng):
    codebook = bernoulli(rng)
    reached = {}
    for snr_db in (0.0, 20.0):
        received, popularity, counts, _ = draw_round(codebook, 320, snr_db, rng)
        reached[snr_db] = accuracy(AmpDa(codebook).decode(received, popularity).counts, counts)
    # measured over six seeds: .24 to .29 at 0 dB, .993 and above at 20 dB
    assert reached[20.0] > 0.97
    assert reached[0.0] < 0.35


def test_it_learns_the_noise_variance(rng):
    codebook = bernoulli(rng)
    received, popularity, _, noise_var = draw_round(codebook, 320, 20.0, rng)
    learned = AmpDa(codebook).decode(received, popularity).noise_var
    # a few wrong counts, each of energy one against a noise energy of a tenth, raise the estimate
    assert 0.8 < (learned.mean() / noise_var.mean()).item() < 2.5


def test_a_given_noise_variance_is_used_as_it_is(rng):
    codebook = bernoulli(rng)
    received, popularity, *_ = draw_round(codebook, 70, 10.0, rng)
    decoder = AmpDa(codebook)
    decoded = decoder.decode(received, popularity, noise_var=0.3)
    torch.testing.assert_close(decoded.noise_var, torch.full_like(decoded.noise_var, 0.3))
    assert not torch.allclose(decoded.mean, decoder.decode(received, popularity).mean, atol=1e-2)


def test_silent_slots_in_noise_stay_silent(rng):
    received = 0.01 * torch.randn(50, LENGTH, generator=rng)
    decoded = AmpDa(bernoulli(rng)).decode(received, torch.ones(NUM_CODEWORDS))
    assert decoded.num_active == 0
    assert torch.isfinite(decoded.mean).all()


def test_exact_counts_are_only_claimed_when_they_explain_everything(rng):
    codebook = bernoulli(rng)
    received, _, counts, _ = draw_round(codebook, 20, 30.0, rng)
    assert exact_counts(received, codebook) is None
    assert exact_counts(counts.float() @ codebook, codebook) is None  # interference, so the matched filter is off
    exact = exact_counts(counts.float(), torch.eye(NUM_CODEWORDS))
    assert exact is not None
    assert torch.equal(exact, counts.float())


def test_bad_arguments_are_refused_in_one_sentence(rng):
    codebook = bernoulli(rng)
    received = torch.zeros(3, LENGTH)
    with pytest.raises(ConfigError, match=r"damping = 1\.0: expected 0 to less than 1"):
        AmpDaSettings(damping=1.0)
    with pytest.raises(ConfigError, match=r"batch_slots = 0: expected 1 to"):
        AmpDaSettings(batch_slots=0)
    with pytest.raises(ShapeError, match=r"noise_var has shape \(2,\)"):
        noise_per_slot(torch.ones(2), received)
    with pytest.raises(ShapeError, match="negative"):
        AmpDa(codebook).decode(received, torch.ones(NUM_CODEWORDS), noise_var=-1.0)


def test_a_signal_on_the_wrong_scale_still_ends(rng):
    received = 1e4 * torch.randn(3, LENGTH, generator=rng)
    decoded = AmpDa(bernoulli(rng), AmpDaSettings(max_iterations=3)).decode(received, torch.ones(NUM_CODEWORDS))
    assert torch.isfinite(decoded.mean).all()
