import copy
from functools import partial

import pytest
import torch

from aircomp.common.rng import generator
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.amp.prior import reach_for
from aircomp.decoders.amp.steps import MIN_NOISE, PreparedCodebook, iterate
from aircomp.decoders.estimate.pilot import PilotEstimator
from aircomp.decoders.net import gamp_net
from aircomp.decoders.net.blocks import (
    Evidence,
    Scalars,
    expectation_maximisation,
    initial_belief,
    standardised,
    tied_activity,
)
from aircomp.decoders.net.gamp_net import BATCH_ESTIMATE, GampNet, GampNetDecoder
from aircomp.decoders.settings import GampNetSettings, GampSettings
from aircomp.encode.codebook import make_codebook
from aircomp.errors import ConfigError, ShapeError
from aircomp.testing import check_decoder
from helpers.draws import accuracy, zipf_round
from plain.gamp_net import unroll as plain_unroll

CODEBOOK = make_codebook("two-bases", 128, 64, rng=generator(0, "codebook"))
GATES = ("damping", "cnn_gate", "rate_gate", "activity_gate", "noise_gate")


draw_round = partial(zipf_round, codebook=CODEBOOK)


def trained(**settings):
    """Return a network as training might leave it: every parameter away from where it starts."""
    net, rng = GampNet(GampNetSettings(**settings)), generator(0, "trained")
    with torch.no_grad():
        for name, p in net.named_parameters():
            noise = torch.randn(p.shape, generator=rng)
            p.add_(0.3 * noise if "." not in name else 0.03 * noise)
    return net


def neutral():
    net = GampNet(GampNetSettings())
    with torch.no_grad():
        for name in GATES:
            getattr(net, name).fill_(-100.0)  # the sigmoid of which is zero in float32
    return net


def tiny():
    """Return a small network, its codebook and a round, in double precision, away from kinks."""
    net = trained(num_layers=3, filters=3).double()
    rows = torch.randn(6, 4, generator=generator(1, "rows"), dtype=torch.float64)
    rows = rows / rows.norm(dim=1, keepdim=True)
    y = torch.randn(5, 4, generator=generator(2, "signal"), dtype=torch.float64)
    rate = 0.2 + torch.rand(6, generator=generator(3, "rate"), dtype=torch.float64)
    return net, rows, y, rate, torch.full((5,), 0.2, dtype=torch.float64)


@pytest.mark.seconds
@pytest.mark.parametrize("reference", ["round", "slot"])
def test_it_has_the_properties_of_a_decoder(reference):
    net = trained(num_layers=2, filters=4)
    check_decoder(lambda codebook: GampNetDecoder(net, codebook, snr_reference=reference))


@pytest.mark.parametrize("snr_db", [-10.0, 0.0, 10.0, 40.0])
def test_with_neutral_parameters_it_is_gamp(snr_db):
    received, popularity, _, noise_var = draw_round(60, 10, snr_db)
    net = neutral()
    rate = PilotEstimator(CODEBOOK, **BATCH_ESTIMATE).estimate(received, popularity, 10, noise_var)[0].rate
    noise = noise_var.clamp(min=MIN_NOISE)
    reach = reach_for(float(noise.max() + (rate @ CODEBOOK.square()).max()), max_count=10)
    gamp = iterate(received, PreparedCodebook.of(CODEBOOK), noise[:, None], rate[None], iterations=10, reach=reach)
    whole = net(received, CODEBOOK, popularity, num_active=10, noise_var=noise_var)
    torch.testing.assert_close(whole.mean, gamp.x_hat, rtol=0, atol=1e-5)  # ten iterations of float32
    assert whole.num_active_hat.item() == pytest.approx(gamp.x_hat.sum(1).mean().item(), rel=1e-5)
    for chunk in (7, 64):
        with torch.no_grad():
            parts = net.unroll(received, CODEBOOK, rate, noise_var, hold_noise=True, chunk=chunk)
        torch.testing.assert_close(parts.mean, gamp.x_hat, rtol=0, atol=1e-5)


@pytest.mark.seconds
@pytest.mark.parametrize("reference", ["round", "slot"])
@pytest.mark.parametrize("snr_db", [0.0, 10.0])
def test_untrained_it_decodes_as_gamp_does(snr_db, reference):
    received, popularity, counts, _ = draw_round(500, 10, snr_db, reference=reference)
    untrained = GampNetDecoder(GampNet(GampNetSettings()), CODEBOOK, snr_reference=reference)
    net = untrained.decode(received, popularity, num_active=10)  # only a trained one finds that out
    gamp = Gamp(CODEBOOK, GampSettings(agreement=0.0), snr_reference=reference).decode(
        received, popularity, num_active=10
    )
    assert accuracy(net.counts, counts) == pytest.approx(accuracy(gamp.counts, counts), abs=0.01)


@pytest.mark.parametrize("snr_db", [0.0, 10.0, 25.0])
def test_fast_equals_plain(snr_db):
    net = trained()
    received, popularity, _, noise_var = draw_round(40, 9, snr_db)
    plain = plain_unroll(net, received, CODEBOOK, 9 * popularity, noise_var)
    with torch.no_grad():
        fast = net.unroll(received, CODEBOOK, 9 * popularity, noise_var, chunk=16)
    for ours, theirs in ((fast.mean, plain.mean), (fast.noise_var, plain.noise_var)):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)  # float32 through ten layers
    assert fast.num_active_hat.item() == pytest.approx(plain.num_active_hat.item(), abs=1e-4)


def test_fast_gradients_equal_those_of_autograd_through_plain():
    net = trained(num_layers=4).double()
    rows = CODEBOOK.double().requires_grad_()
    received, popularity, counts, noise_var = (t.double() for t in draw_round(30, 9, 5.0))
    inputs = [rows, *net.parameters()]

    def gradients(run):
        out = run(received, rows, 9 * popularity, noise_var)
        loss = (out.mean - counts).square().sum() + (out.num_active_hat - 9) ** 2 + out.noise_var.sum()
        return torch.autograd.grad(loss, inputs)

    fast = gradients(net.unroll)
    plain = gradients(lambda *a: plain_unroll(net, *a))
    for ours, theirs in zip(fast, plain, strict=True):
        # the table of the fast one ends where a weight is exp(−16)
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5 * theirs.abs().max().item() + 1e-9)


def test_gradients_are_right(monkeypatch):
    # all counts that can matter: the reach is made for float32
    monkeypatch.setattr(gamp_net, "reach_for", lambda *_, **__: 40)
    net, rows, y, rate, noise_var = tiny()
    names, params = zip(*net.named_parameters(), strict=True)
    scalars = [p for name, p in zip(names, params, strict=True) if "." not in name]

    class Run(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, y, rows):
            out = self.net.unroll(y, rows, rate, noise_var)
            return out.mean, out.num_active_hat, out.noise_var

    def decode(y, rows, *values):
        changed = {f"net.{name}": v for name, v in zip(Scalars._fields, values, strict=True)}
        return torch.func.functional_call(Run(), changed, (y, rows))

    inputs = (y.requires_grad_(), rows.requires_grad_(), *scalars)
    assert torch.autograd.gradcheck(decode, inputs, fast_mode=True)


def test_every_use_of_the_codebook_has_a_gradient(monkeypatch):
    net, rows, y, rate, noise_var = tiny()
    rows.requires_grad_()

    def gradient(prepare):
        monkeypatch.setattr(PreparedCodebook, "of", classmethod(lambda cls, c, by_codeword: prepare(cls, c)))
        return torch.autograd.grad(net.unroll(y, rows, rate, noise_var).mean.square().sum(), rows)[0]

    whole = gradient(lambda cls, c: cls(c, c.square()))
    without_squares = gradient(lambda cls, c: cls(c, c.detach().square()))
    without_rows = gradient(lambda cls, c: cls(c.detach(), c.square()))
    assert (whole - without_squares).abs().max() > 1e-3
    assert (whole - without_rows).abs().max() > 1e-3
    torch.testing.assert_close(without_squares + without_rows, whole)


def test_everything_that_is_learned_has_a_gradient():
    net = trained()
    received, popularity, counts, _ = draw_round(64, 9, 5.0)
    rows = CODEBOOK.clone().requires_grad_()
    out = net(received, rows, popularity)
    ((out.mean - counts).square().mean() + (out.num_active_hat - 9) ** 2).backward()
    last_layer_only_matters_to_nobody = {"activity_gate", "noise_gate"}
    for name, p in [("codebook", rows), *net.named_parameters()]:
        used = p.grad[:-1] if name in last_layer_only_matters_to_nobody else p.grad
        assert torch.isfinite(p.grad).all(), name
        assert (used != 0).any(), name


@pytest.mark.seconds
@pytest.mark.parametrize("chunk", [1, 16, 1000])
def test_the_chunk_changes_nothing(chunk, monkeypatch):
    received, popularity, _, _ = draw_round(40 if chunk == 1 else 150, 9, 3.0, reference="slot")
    net = trained(num_layers=3 if chunk == 1 else 10)
    decoder = GampNetDecoder(net, CODEBOOK, snr_reference="slot")
    monkeypatch.setattr(gamp_net, "CHUNK", 130)
    whole = decoder.decode(received, popularity)
    monkeypatch.setattr(gamp_net, "CHUNK", chunk)
    parts = decoder.decode(received, popularity)
    assert torch.equal(whole.counts, parts.counts)
    torch.testing.assert_close(parts.mean, whole.mean, rtol=1e-6, atol=5e-6)  # a chunk of one multiplies in other order
    torch.testing.assert_close(parts.noise_var, whole.noise_var, rtol=1e-5, atol=0)
    assert parts.num_active_hat == pytest.approx(whole.num_active_hat, rel=1e-6)


def test_slots_share_what_the_round_shares_and_nothing_else():
    received, popularity, _, noise_var = draw_round(40, 9, 3.0)
    for net, shared in ((trained(), True), (neutral(), False)):  # expectation maximisation does nothing in the second
        with torch.no_grad():
            together = net.unroll(received, CODEBOOK, 9 * popularity, noise_var)
            alone = net.unroll(received[:1], CODEBOOK, 9 * popularity, noise_var[:1])
        moved = (together.mean[0] - alone.mean[0]).abs().max().item()
        assert (moved > 1e-3) if shared else (moved < 1e-4)


def test_what_is_given_is_kept():
    received, popularity, _, _ = draw_round(50, 9, 3.0)
    given = torch.linspace(0.05, 0.4, 50)
    net = trained()
    out = net(received, CODEBOOK, popularity, num_active=12.0, noise_var=given)
    assert torch.equal(out.noise_var, given)
    decoded = GampNetDecoder(net, CODEBOOK).decode(received, popularity, num_active=12.0, noise_var=given)
    assert decoded.num_active_hat == 12
    assert (decoded.counts.sum(1) == 12).all()


def test_noise_that_follows_the_slot_does_so_in_training_too():
    received, popularity, _, noise_var = draw_round(400, 9, 0.0, reference="slot")
    net = GampNet(GampNetSettings(num_layers=2))
    with torch.no_grad():
        errors = {
            noise: (net(received, CODEBOOK, popularity, snr_reference=noise).noise_var - noise_var)
            .square()
            .mean()
            .item()
            for noise in ("round", "slot")
        }
    assert errors["slot"] < 0.5 * errors["round"]


def test_expectation_maximisation_steps_as_far_as_it_is_confident():
    rate, noise_var = torch.tensor([1.0, 0.1]), torch.full((4,), 0.5)
    belief = initial_belief(rate, noise_var)
    one = torch.tensor(1.0)
    open_gates = Scalars(*[one] * 8)
    mean = torch.tensor([[2.0, 0.6]])

    def updated(var, gates=open_gates, *, total=1.1, hold_noise=False):
        active, noise, before = torch.tensor([[0.7, 0.3]]), torch.tensor([[1.0]]), torch.tensor([[0.5]])
        evidence = Evidence(mean, torch.full_like(mean, var), active, noise, before, None, num_slots=4)
        log_total = torch.tensor(total).log()
        return expectation_maximisation(belief, evidence, gates, log_total=log_total, hold_noise=hold_noise)

    def held(rates):
        return 1.1 * rates / rates.sum()

    sure, unsure = updated(1e-8), updated(1e4)
    proposal = torch.tensor([1.8, 0.5])  # the average of four slots and the rate itself as a fifth
    torch.testing.assert_close(sure.log_rate[0].exp(), held(proposal), rtol=1e-4, atol=0)  # nearly all the way
    torch.testing.assert_close(unsure.log_rate[0].exp(), rate, rtol=1e-3, atol=0)
    c = (4.0 + 0.36) / 2  # for a variance of one
    expected = held(rate * (proposal / rate) ** (c / (1 + c)))
    torch.testing.assert_close(updated(1.0).log_rate[0].exp(), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(sure.activity, torch.tensor([[0.7, 0.3]]))
    torch.testing.assert_close(sure.noise_var, torch.ones(4, 1))
    shut = updated(1e-8, Scalars(*[0 * one] * 8))
    torch.testing.assert_close(shut.log_rate, belief.log_rate)
    torch.testing.assert_close(shut.activity, tied_activity(belief.log_rate))
    assert torch.equal(shut.noise_var, belief.noise_var)
    given = updated(1e-8, total=3.0, hold_noise=True)
    assert given.log_rate.exp().sum().item() == pytest.approx(3, rel=1e-5)
    assert torch.equal(given.noise_var, belief.noise_var)


def test_expectation_maximisation_corrects_a_wrong_start():
    received, _, counts, noise_var = draw_round(600, 10, 15.0)
    net, seen = GampNet(GampNetSettings()), []
    equal = torch.full((128,), 10 / 128)
    with torch.no_grad():
        net.rate_gate.fill_(3.0)
        net.noise_gate.fill_(0.0)
        out = net.unroll(received, CODEBOOK, equal, 4 * noise_var, watch=seen.append)
    chosen = counts.float().mean(0)
    assert (seen[-1].rate[0] - chosen).abs().sum() < 0.1 * (equal - chosen).abs().sum()
    assert out.num_active_hat.item() == pytest.approx(10, abs=0.5)
    assert out.noise_var.mean().item() == pytest.approx(noise_var.mean().item(), rel=0.3)


def test_scalars_stay_in_their_ranges_and_start_where_the_paper_or_gamp_has_them():
    net = GampNet(GampNetSettings(num_layers=1))
    (k,) = net.scalars(CODEBOOK)
    found = [round(v.item(), 6) for v in k]
    assert found == [1.0, 0.02, 1.0, 1.0, 0.85, 0.02, 0.02, 0.02]
    ends = []
    for raw in (-50.0, 50.0):
        with torch.no_grad():
            for name in Scalars._fields:
                getattr(net, name).fill_(raw)
        ends.append([v.item() for v in net.scalars(CODEBOOK)[0]])
    assert ends[0] == pytest.approx([0.3, 0, 0.5, 0.135335, 0, 0, 0, 0], abs=1e-5)
    assert ends[1] == pytest.approx([2, 1, 2, 7.389056, 1, 1, 1, 1], abs=1e-5)


def test_standardised_rates_forget_the_number_of_devices():
    log_rate = torch.randn(1, 50, generator=generator(0, "rates"))
    found = standardised(log_rate)
    torch.testing.assert_close(found, standardised(log_rate + 2.0), rtol=0, atol=1e-5)
    assert found.square().mean().item() == pytest.approx(1, abs=1e-3)
    flat = torch.full((1, 50), -3.3).requires_grad_()
    standardised(flat).square().sum().backward()
    assert standardised(flat).abs().max() < 1e-3
    assert torch.isfinite(flat.grad).all()


@pytest.mark.seconds
@pytest.mark.parametrize(("num_active", "snr_db"), [(1, -10.0), (40, -10.0), (10, 5.0), (1, 40.0), (40, 40.0)])
@pytest.mark.parametrize("settings", [{}, {"agreement": 0.08}])
def test_it_never_breaks_down(num_active, snr_db, settings):
    received, popularity, counts, _ = draw_round(30, num_active, snr_db)
    net = trained(num_layers=4, filters=4, **settings)
    decoded = GampNetDecoder(net, CODEBOOK).decode(received, popularity)
    assert torch.isfinite(decoded.mean).all()
    assert (decoded.mean >= 0).all()
    rows = CODEBOOK.clone().requires_grad_()
    out = net(received, rows, popularity)
    ((out.mean - counts).square().mean() + out.num_active_hat + out.noise_var.log().mean()).backward()
    assert all(torch.isfinite(p.grad).all() for p in (rows, *net.parameters()) if p.grad is not None)


def test_a_broken_cnn_is_bounded():
    received, popularity, _, _ = draw_round(60, 10, 5.0)
    net = trained(filters=8)
    with torch.no_grad():
        for cnn in net.cnn:
            cnn.get_parameter("weight_out").mul_(1e6)
    decoded = GampNetDecoder(net, CODEBOOK).decode(received, popularity)
    assert torch.isfinite(decoded.mean).all()


def test_one_slot_no_slots_and_silence():
    received, popularity, counts, noise_var = draw_round(1, 5, 20.0)
    net = GampNet(GampNetSettings())
    decoder = GampNetDecoder(net, CODEBOOK)
    assert torch.equal(decoder.decode(received, popularity, num_active=5, noise_var=noise_var).counts, counts)
    assert decoder.decode(received[:0], popularity).counts.shape == (0, 128)
    rows = CODEBOOK.clone().requires_grad_()
    for quiet in (torch.zeros(20, 64), torch.zeros(0, 64)):
        out = net(quiet, rows, popularity)
        out.mean.sum().backward()
        assert not out.mean.any()
        assert out.num_active_hat == 0
    assert not rows.grad.any()


def test_without_noise_every_slot_is_exact():
    for num_active in (1, 7, 13):
        received, popularity, counts, _ = draw_round(200, num_active, 200.0)
        decoded = GampNetDecoder(GampNet(GampNetSettings()), CODEBOOK).decode(received, popularity)
        assert torch.equal(decoded.counts, counts)


def test_double_precision_and_copies_go_through():
    received, popularity, counts, _ = draw_round(100, 6, 15.0)
    net = GampNet(GampNetSettings())
    net(received, CODEBOOK, popularity).mean.sum().backward()
    decoded = GampNetDecoder(copy.deepcopy(net), CODEBOOK).decode(received.double(), popularity.double())
    assert decoded.mean.dtype == torch.float64
    assert accuracy(decoded.counts, counts) > 0.99


def test_its_size_does_not_depend_on_the_codebook():
    net = GampNet(GampNetSettings())
    # 6·32·3 + 32, 32·32·3 + 32, 32·3 + 1 and eight scalars, ten times
    assert sum(p.numel() for p in net.parameters()) == 38_170
    small = make_codebook("two-bases", 32, 16, rng=generator(0, "codebook"))
    received, popularity, counts, _ = draw_round(300, 3, 15.0, codebook=small)
    assert accuracy(GampNetDecoder(net, small).decode(received, popularity).counts, counts) > 0.95


def test_mistakes_are_named(as_in_production):
    with pytest.raises(ConfigError, match="kernel = 4: expected an odd number"):
        GampNetSettings(kernel=4)
    with pytest.raises(ConfigError, match="num_layers"):
        GampNetSettings(num_layers=0)
    decoder = GampNetDecoder(GampNet(GampNetSettings()), CODEBOOK)
    received, popularity, _, _ = draw_round(5, 6, 10.0)
    with pytest.raises(ShapeError, match="noise_var has shape"):
        decoder.decode(received, popularity, noise_var=torch.ones(3))
    with pytest.raises(ConfigError, match="num_active is -1"):
        decoder.decode(received, popularity, num_active=-1)
    with pytest.raises(ConfigError, match="no snr_reference 'fast'"):
        GampNetDecoder(GampNet(GampNetSettings()), CODEBOOK, snr_reference="fast")  # pyright: ignore[reportArgumentType]


def test_the_number_of_devices_is_what_the_round_tells_not_what_the_network_finds():
    received, popularity, _, _ = draw_round(600, 9, 3.0)
    net = trained()
    decoded = GampNetDecoder(net, CODEBOOK).decode(received, popularity)
    shared, noise = PilotEstimator(CODEBOOK).estimate(received, popularity)
    with torch.no_grad():
        found = net.unroll(received, CODEBOOK, shared.rate, noise).num_active_hat.item()
    assert abs(found - shared.num_active) > 0.1  # the network disagrees, so that the next line says something
    assert (decoded.num_active_hat, decoded.num_active_error) == (shared.num_active, shared.num_active_error)
    assert 0 < shared.num_active_error < 1
