"""The paper's network: equal to the authors' code number by number, to the text by a plain version, and trainable."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from aircomp.channel.awgn import transmit
from aircomp.common.rng import generator
from aircomp.decoders.net import amp_da_net
from aircomp.decoders.net.amp_da_net import AmpDaNet, AmpDaNetDecoder
from aircomp.decoders.net.count_table import count_moments
from aircomp.decoders.net.refit import greedy_counts, refit
from aircomp.decoders.settings import AmpDaNetSettings
from aircomp.errors import ConfigError
from aircomp.layer.communication import CommunicationLayer
from aircomp.testing import check_decoder

REFERENCE = Path(__file__).parents[1] / "reference"
TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-10}
"""The reference's README: float32 sums in another order, float64 is generous by four digits."""
LOOSER = {"nu": 2e-5, "sigma2": 2e-5}
"""… of float32: a difference of large moments in the authors' code, and the logarithm of 100."""
NAMES = {"sigma2": "noise_var", "k": "num_active", "pi": "popularity", "lambda": "rate", "alpha": "activity"}


@pytest.fixture(scope="module")
def inputs():
    return load_file(REFERENCE / "inputs.safetensors")


@pytest.fixture(scope="module")
def authors(inputs):
    """The authors' checkpoint as a layer."""
    state = load_file(REFERENCE / "parameters.safetensors")
    return CommunicationLayer.from_authors(state | {"C_nt": inputs["codebook"]})


@pytest.fixture(scope="module")
def expected():
    return load_file(REFERENCE / "network.safetensors")


def decoder_of(layer, dtype):
    """The decoder in either precision, from the same float32 weights."""
    net = AmpDaNet(layer.net.settings)
    net.load_state_dict(layer.net.state_dict())
    return AmpDaNetDecoder(net.to(dtype).requires_grad_(False), layer.codebook.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_every_layer_equals_the_authors(authors, inputs, expected, dtype):
    prefix = f"{str(dtype).removeprefix('torch.')}.layers."
    trace = decoder_of(authors, dtype).trace(inputs["received"].to(dtype), inputs["popularity"].to(dtype))
    for name in ("x_hat", "nu", "z", "v", "sigma2", "k", "pi", "lambda", "alpha"):
        reference = expected[prefix + name]
        found = torch.stack([getattr(state, NAMES.get(name, name)) for state in trace])
        found = found[:, : reference.shape[1]] if name in ("x_hat", "nu", "z", "v") else found.reshape(reference.shape)
        atol = LOOSER.get(name, TOLERANCE[dtype]) if dtype == torch.float32 else TOLERANCE[dtype]
        torch.testing.assert_close(found, reference, rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_counts_equal_the_authors_wherever_they_are_unambiguous(authors, inputs, expected, dtype):
    prefix, margin = f"{str(dtype).removeprefix('torch.')}.", 1e-4 if dtype == torch.float32 else 1e-9
    decoded = decoder_of(authors, dtype).decode(inputs["received"].to(dtype), inputs["popularity"].to(dtype))
    torch.testing.assert_close(decoded.mean, expected[prefix + "x_hat"], rtol=0, atol=TOLERANCE[dtype])
    torch.testing.assert_close(decoded.noise_var, expected[prefix + "sigma2"], rtol=0, atol=TOLERANCE[dtype])
    assert decoded.num_active_hat == pytest.approx(float(expected[prefix + "k_hat"]), abs=TOLERANCE[dtype])
    assert decoded.num_active == int(expected[prefix + "k_int"])
    clear = expected[prefix + "counts_margin"] > margin
    assert clear.sum() >= 85
    assert torch.equal(decoded.counts[clear], expected[prefix + "counts"][clear].long())
    for name, total in (("counts_greedy", decoded.num_active), ("counts_greedy_10", 10)):
        clear = expected[f"{prefix}{name}_margin"] > margin
        assert torch.equal(greedy_counts(decoded.mean, total)[clear], expected[prefix + name][clear].long())


def test_chunks_share_nothing_but_the_number_of_devices(authors, inputs, expected, monkeypatch):
    monkeypatch.setattr(amp_da_net, "CHUNK", 64)
    decoder = decoder_of(authors, torch.float64)
    decoded = decoder.decode(inputs["received"].double(), inputs["popularity"].double())
    torch.testing.assert_close(decoded.mean[60:68], expected["float64.chunks_of_64.x_hat"], rtol=0, atol=1e-10)
    assert decoded.num_active_hat == pytest.approx(float(expected["float64.chunks_of_64.k_hat"]), abs=1e-10)
    last = decoder.trace(inputs["received"].double(), inputs["popularity"].double())[-1]
    torch.testing.assert_close(last.num_active, expected["float64.chunks_of_64.k_hat_of_chunk"], rtol=0, atol=1e-10)


def test_the_authors_rounding_may_leave_a_sum_too_large():
    x = torch.tensor([[3.2, 2.1, 0.4, 0.0]])
    assert greedy_counts(x, 2).tolist() == [[2, 1, 0, 0]]  # each entry goes down once
    assert greedy_counts(x, 7).tolist() == [[4, 2, 1, 0]]


@given(st.integers(0, 10_000), st.integers(0, 30))
def test_greedy_rounding_is_the_authors_loop(seed, total):
    x = 2 * torch.rand(3, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert greedy_counts(x, total).tolist() == [_greedy(row, total) for row in x.tolist()]


def _greedy(row, total):
    counts = [math.floor(value) for value in row]
    order = sorted(range(len(row)), key=lambda j: row[j] - counts[j])
    missing = total - sum(counts)
    if missing > 0:
        for j in order[::-1][:missing]:
            counts[j] += 1
    for j in [j for j in order if counts[j] > 0][: max(-missing, 0)]:
        counts[j] -= 1
    return counts


def test_refitting_recovers_what_was_sent_without_noise():
    codebook = F.normalize(torch.randn(32, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    truth = torch.zeros(1, 32)
    truth[0, [3, 9, 20]] = torch.tensor([2.0, 1.0, 1.0])
    soft = 0.8 * truth + 0.01
    fitted = refit(soft, truth @ codebook, codebook, 4)
    torch.testing.assert_close(fitted, truth, rtol=0, atol=1e-4)  # the ridge of 1e-6 over the smallest eigenvalue


# ── the paper's form, beside a plain version of the text ──────────────────────────────────────────────────────────────


def plain_paper(net, received, C, popularity, size):
    """Sec. III-E as it is written down: a loop over batches, conv1d, a table with an exponential for every count."""
    mean, totals, noise = [], [], []
    raw = {name: value.detach() for name, value in net.named_parameters()}
    for y in received.split(size):
        x, nu, z, v = y.new_zeros(len(y), len(C)), y.new_ones(len(y), len(C)), y, torch.ones_like(y)
        lam, sigma2 = 10 * popularity / popularity.sum(), y.new_full((len(y), 1), 100.0)
        alpha = 1 - torch.exp(-lam)
        for t in range(net.settings.num_layers):
            gamma, beta = 1.15 + 0.85 * torch.tanh(raw["gain"][t]), 1.25 + 0.75 * torch.tanh(raw["precision"][t])
            eta, zeta, tau = (
                torch.sigmoid(raw["damping"][t]),
                torch.sigmoid(raw["cnn_gate"][t]),
                raw["temperature"][t].exp(),
            )
            r, d = y - z, sigma2 + v
            v_new = nu @ C**2
            z, v = eta * z + (1 - eta) * (x @ C - gamma * r * v_new / d), eta * v + (1 - eta) * v_new
            kappa = beta / d
            V = 1 / (kappa @ (C**2).T)
            R = x + V * ((kappa * r) @ C.T)
            k = torch.arange(21, dtype=y.dtype)
            weight = k * lam.log()[:, None] - lam[:, None] - torch.lgamma(k + 1) + alpha.log()[:, None]
            weight[:, 0] = torch.log(1 - alpha + alpha * torch.exp(-lam))
            table = torch.softmax((weight - (R[..., None] - k) ** 2 / (2 * V[..., None])) / tau, dim=-1)
            m = table @ k
            nu = table @ k**2 - m**2
            spread = (lam.log() - lam.log().mean()) / (lam.log().std(correction=0) + 1e-6)
            features = torch.stack([R, V.sqrt(), m, nu.sqrt(), alpha.expand_as(m), spread.expand_as(m)], dim=1)
            for name in ("weight_in", "weight_mid", "weight_out"):
                features = F.relu(F.conv1d(features, raw[f"cnn.{t}.{name}"], padding=1))
            x = (1 - zeta) * m + zeta * features[:, 0]
            c = (m.mean(0) ** 2 / nu.mean(0)).mean()
            lam = torch.exp(lam.log() + c / (1 + c) * (m.mean(0).log() - lam.log()))
            gate = torch.sigmoid(raw["activity_gate"][t])
            alpha = (1 - gate) * (1 - torch.exp(-lam)) + gate * (1 - table[..., 0]).mean(0)
            energy = ((y - z) ** 2 / (1 + v / sigma2) ** 2 + sigma2 * v / (sigma2 + v)).mean(1, keepdim=True)
            step = torch.sigmoid(raw["noise_gate"][t])
            sigma2 = torch.exp((1 - step) * sigma2.log() + step * energy.log())
        mean.append(x)
        totals.append(lam.sum())
        noise.append(sigma2[:, 0])
    return torch.cat(mean), torch.stack(totals), torch.cat(noise)


def moved(settings, dtype=torch.float64, seed=0):
    """A network whose every number is away from its start."""
    net = AmpDaNet(settings, rng=generator(seed, "weights"))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator(seed, "moved", parameter.numel()))
    return net.to(dtype)


def a_round(num_slots=24, seed=0, snr_db=5.0, dtype=torch.float64, num_codewords=32, uses=16):
    popularity = 1 / torch.arange(1, num_codewords + 1, dtype=dtype)
    choices = torch.multinomial(
        popularity.expand(num_slots, -1), 6, replacement=True, generator=generator(seed, "choices")
    )
    counts = F.one_hot(choices, num_codewords).sum(1)
    codebook = F.normalize(torch.randn(num_codewords, uses, generator=generator(seed, "codebook")), dim=1).to(dtype)
    return (
        transmit(counts, codebook, snr_db=snr_db, reference="slot", rng=generator(seed, "noise")),
        codebook,
        popularity,
    )


@pytest.mark.parametrize("size", [1, 8, 24])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_papers_form_is_the_text(size, seed):
    net = moved(AmpDaNetSettings(num_layers=4, filters=5), seed=seed)
    y, codebook, popularity = a_round(seed=seed)
    mean, total, noise = plain_paper(net, y, codebook, popularity, size)
    out = net(y, codebook, popularity, batch_slots=size)
    torch.testing.assert_close(out.mean, mean, rtol=0, atol=1e-10)  # float64, sums in another order
    torch.testing.assert_close(out.total, total, rtol=0, atol=1e-10)
    torch.testing.assert_close(out.noise_var, noise, rtol=1e-10, atol=0)


def test_em_by_slot_is_a_batch_of_one():
    y, codebook, popularity = a_round()
    by_slot, by_batch = (moved(AmpDaNetSettings(num_layers=3, filters=4, em=em)) for em in ("slot", "batch"))
    one = by_slot(y, codebook, popularity, batch_slots=24)
    torch.testing.assert_close(one.mean, by_batch(y, codebook, popularity, batch_slots=1).mean, rtol=0, atol=0)
    assert len(one.total) == 24
    shared = by_batch(y, codebook, popularity, batch_slots=24)
    assert (shared.mean - one.mean).abs().max() > 1e-3
    assert len(shared.total) == 1


def test_estimates_are_another_start():
    y, codebook, popularity = a_round(num_slots=200)
    net = moved(AmpDaNetSettings(num_layers=1, filters=4, start="estimates"))
    first = AmpDaNetDecoder(net.requires_grad_(False), codebook).trace(y, popularity)[0]
    assert 0 < float(first.noise_var.max()) < 5  # from 100 a half-open gate leads to more than ten


def test_estimates_of_a_silent_round_decode_to_nothing():
    _, codebook, popularity = a_round(num_slots=4)
    net = moved(AmpDaNetSettings(num_layers=2, filters=4, start="estimates"))
    silence = torch.full((4, codebook.shape[1]), 1e-12, dtype=codebook.dtype)  # of exactly zero no network is asked
    decoded = AmpDaNetDecoder(net, codebook).decode(silence, popularity)
    assert decoded.mean.isfinite().all()
    assert decoded.num_active == 0


@pytest.mark.parametrize("options", [{"em": "slot"}, {"start": "estimates"}])
def test_the_authors_form_has_no_readings_of_the_text(options):
    with pytest.raises(ConfigError, match='form = "authors" has em'):
        AmpDaNetSettings(form="authors", **options)


def test_it_has_the_properties_of_a_decoder():  # in the authors' form a row may sum to more
    def make(codebook):
        net = moved(AmpDaNetSettings(num_layers=2, filters=4), torch.float32)
        return AmpDaNetDecoder(net.requires_grad_(False), codebook)

    check_decoder(make)


@pytest.mark.parametrize("form", ["paper", "authors"])
def test_a_given_number_of_devices_and_noise_are_kept(form):
    y, codebook, popularity = a_round()
    net = moved(AmpDaNetSettings(form=form, num_layers=3, filters=4)).requires_grad_(False)
    decoded = AmpDaNetDecoder(net, codebook).decode(y, popularity, num_active=6, noise_var=0.1)
    assert decoded.num_active_hat == 6
    assert torch.equal(decoded.noise_var, torch.full((24,), 0.1, dtype=y.dtype))


def test_gradients_are_right():
    y, codebook, popularity = a_round(num_slots=3, num_codewords=10, uses=6)  # each number is moved on its own
    net = moved(AmpDaNetSettings(num_layers=2, filters=2))
    names = [name for name, _ in net.named_parameters()]

    def run(received, codebook, *parameters):
        out = torch.func.functional_call(
            net, dict(zip(names, parameters, strict=True)), (received, codebook, popularity), {"batch_slots": 3}
        )
        return out.mean, out.total, out.noise_var

    inputs = [t.detach().requires_grad_() for t in (y, codebook, *net.parameters())]
    assert torch.autograd.gradcheck(run, inputs, eps=1e-7, atol=1e-5, rtol=1e-3)


def test_the_authors_cache_stops_the_gradient_of_the_matched_filter():
    y, codebook, popularity = a_round(num_slots=4)
    codebook = codebook.requires_grad_()
    found = {}
    for form in ("paper", "authors"):
        net = moved(AmpDaNetSettings(form=form, num_layers=1, filters=4))
        net(y, codebook, popularity, batch_slots=4).mean.sum().backward()
        found[form], codebook.grad = codebook.grad.abs().max(), None
    # x̂ is zero before the only layer, so C·x̂ passes no gradient, and Cᵀ and C² are all that is left
    assert found["authors"] == 0
    assert found["paper"] > 0


@given(st.integers(0, 10_000))
def test_the_table_equals_a_sum_over_counts(seed):
    rng = torch.Generator().manual_seed(seed)
    R, V, rate, odds = (torch.rand(3, 4, generator=rng, dtype=torch.float64) for _ in range(4))
    R, V = 8 * R - 1, V + 0.01
    found = count_moments(R, V, rate.log(), odds, torch.tensor(0.7, dtype=torch.float64), largest=12)
    k = torch.arange(13, dtype=torch.float64)
    logits = (
        k * rate.log()[..., None]
        - torch.lgamma(k + 1)
        + (k > 0) * odds[..., None]
        - (R[..., None] - k) ** 2 / (2 * V[..., None])
    )
    weight = torch.softmax(logits / 0.7, -1)
    mean = weight @ k
    torch.testing.assert_close(found.mean, mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        found.var, (weight * (k - mean[..., None]) ** 2).sum(-1).clamp(min=1e-12), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(found.activity, 1 - weight[..., 0], rtol=0, atol=1e-12)


def test_large_counts_keep_their_variance_in_float32():
    R, V = torch.tensor([[9.3]]), torch.tensor([[1e-3]])
    rate, odds, tau = torch.tensor([[0.5]]).log(), torch.zeros(1, 1), torch.ones(())
    exact = count_moments(*(t.double() for t in (R, V, rate, odds, tau)), largest=20).var
    # 81 − 9² has an error of 1e-5 in float32; around the mean it is that of the weights
    torch.testing.assert_close(
        count_moments(R, V, rate, odds, tau, largest=20).var.double(), exact, rtol=1e-3, atol=1e-9
    )
