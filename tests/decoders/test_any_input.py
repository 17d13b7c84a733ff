"""No finite input stops a decoder or leaves it with numbers that are not finite; nor what follows it."""

import logging
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import aircomp
from aircomp.common.rng import generator
from aircomp.decoders.base import MAX_DEVICES, Decoded
from aircomp.decoders.net.amp_da_net import AmpDaNet, AmpDaNetDecoder
from aircomp.decoders.net.gamp_net import GampNet, GampNetDecoder
from aircomp.decoders.rounding import round_to_sum
from aircomp.decoders.settings import AmpDaNetSettings, GampNetSettings
from aircomp.errors import AirCompError, ConfigError, ShapeError
from aircomp.schemes.digital.link import estimate_snr_db
from aircomp.schemes.digital.repetition import combine
from aircomp.schemes.outputs import Counts, aggregate_output
from aircomp.testing import check_decoded

LARGEST = torch.finfo(torch.float32).max
SHAPE = {"num_layers": 6, "filters": 3}
NETS: dict[str, AmpDaNetSettings | GampNetSettings] = {
    "net": GampNetSettings(**SHAPE),
    "net-agreeing": GampNetSettings(**SHAPE, agreement=0.08),
    "paper": AmpDaNetSettings(**SHAPE),
    "paper-slot": AmpDaNetSettings(**SHAPE, em="slot", start="estimates"),
    "authors": AmpDaNetSettings(**SHAPE, form="authors"),
}
OPTIONS: dict[str, dict] = {
    "posterior": {"sweeps": 2, "burn_in": 2},
    "nnls": {"num_steps": 20},
}
NAMES = [name for name in aircomp.decoder_names() if name not in ("amp-da-net", "gamp-net", "genie")]


def make(name: str, codebook: torch.Tensor, snr_reference: str):
    if name not in NETS:
        return aircomp.make_decoder(name, codebook, snr_reference=snr_reference, **OPTIONS.get(name, {}))
    settings, rng = NETS[name], generator(0, "trained")
    net = GampNet(settings) if isinstance(settings, GampNetSettings) else AmpDaNet(settings)
    with torch.no_grad():
        for parameter in net.parameters():  # far from where training starts, in every direction
            parameter.add_(torch.randn(parameter.shape, generator=rng))
    decoder = GampNetDecoder if isinstance(net, GampNet) else AmpDaNetDecoder
    return decoder(net, codebook, snr_reference=snr_reference)


def check_result(name: str, decoded: Decoded, num_slots: int, num_codewords: int) -> None:
    if name == "authors":  # whose rounding may leave another sum than the number of devices
        assert decoded.counts.shape == (num_slots, num_codewords)
        assert decoded.counts.dtype == torch.int64
        assert (decoded.counts >= 0).all()
        decoded = replace(decoded, counts=round_to_sum(decoded.mean, decoded.num_active))
    check_decoded(decoded, num_slots, num_codewords)


@dataclass(frozen=True)
class Case:
    codebook: torch.Tensor
    received: torch.Tensor
    popularity: torch.Tensor
    given: dict
    snr_reference: str


def draw_codebook(draw, rng) -> torch.Tensor:
    n, uses = draw(st.sampled_from([1, 2, 5, 12])), draw(st.sampled_from([1, 2, 8]))
    rows = torch.randn(n, uses, generator=rng)
    match draw(st.sampled_from(["random", "equal", "opposite", "nearly equal", "axes"])):
        case "equal":
            rows = rows[:1].repeat(n, 1)
        case "opposite":
            rows = rows[:1] * (1 - 2 * (torch.arange(n) % 2))[:, None]
        case "nearly equal":
            rows = rows[:1] + 1e-4 * rows
        case "axes":
            rows = torch.eye(uses)[torch.arange(n) % uses]
    return rows / rows.norm(dim=1, keepdim=True)


def draw_signal(draw, rng, codebook) -> torch.Tensor:
    J, (n, uses) = draw(st.sampled_from([1, 2, 6])), codebook.shape
    scale = 10.0 ** draw(st.one_of(st.integers(-3, 6), st.integers(-45, 38)))
    noise = torch.randn(J, uses, generator=rng)
    match draw(st.sampled_from(["noise", "devices", "constant", "zero", "rank one", "one slot", "opposite", "mixed"])):
        case "noise":
            received = scale * noise
        case "devices":
            devices = draw(st.sampled_from([0, 1, 10, 100, 2000]))
            counts = torch.poisson(torch.rand(J, n, generator=rng) * devices / n, generator=rng)
            received = counts @ codebook + draw(st.sampled_from([0.0, 1e-6, 0.1, 3.0])) * noise
        case "constant":
            received = torch.full((J, uses), scale)
        case "zero":
            received = torch.zeros(J, uses)
        case "rank one":
            received = scale * noise[:, :1] * noise[:1]
        case "one slot":
            received = noise * torch.where(torch.arange(J) == 0, scale, 1.0)[:, None]
        case "opposite":
            received = -scale * codebook[:1].repeat(J, 1)
        case _:
            received = torch.where(noise > 0, scale, min(1 / scale, LARGEST))
    received = received.nan_to_num(0.0).clamp(-LARGEST, LARGEST)
    return received.double() if draw(st.integers(0, 7)) == 0 else received


def draw_popularity(draw, rng, n) -> torch.Tensor:
    match draw(st.sampled_from(["rough", "equal", "one", "nearly one", "some", "largest", "least"])):
        case "rough":
            return torch.rand(n, generator=rng) + 0.01
        case "equal":
            return torch.ones(n)
        case "one":
            return torch.eye(n)[-1]
        case "nearly one":
            return torch.eye(n)[-1] + 1e-12
        case "some":
            return (torch.arange(n) % 2 == 0).float()
        case "largest":
            return torch.full((n,), LARGEST)
        case _:
            return torch.full((n,), 1e-44)


@st.composite
def cases(draw) -> Case:
    rng = generator(draw(st.integers(0, 999)), "case")
    codebook = draw_codebook(draw, rng)
    received = draw_signal(draw, rng, codebook)
    J, n = len(received), len(codebook)
    given = {
        "num_active": draw(st.sampled_from([None, None, None, 0, 1e-30, 0.4, 3, 80.0, 2000, MAX_DEVICES])),
        "noise_var": draw(
            st.sampled_from([None, None, None, 0, 1e-30, 0.1, 1e10, 1e300, torch.rand(J, generator=rng)])
        ),
        "slot_layers": draw(st.sampled_from([None, torch.arange(J), torch.full((J,), 10**15)])),
        "bs_indices": draw(st.sampled_from([None, torch.zeros(J, dtype=torch.int64), torch.arange(J) % n])),
    }
    return Case(codebook, received, draw_popularity(draw, rng, n), given, draw(st.sampled_from(["round", "slot"])))


def check(name: str, case: Case) -> None:
    decoder, (J, n) = make(name, case.codebook, case.snr_reference), (len(case.received), len(case.codebook))
    decoded = decoder.decode(case.received, case.popularity, **case.given)
    check_result(name, decoded, J, n)
    if case.given["num_active"] is not None:
        assert decoded.num_active == round(case.given["num_active"])
    codewords = torch.randn(n, 3, generator=generator(0, "codewords"))
    output = Counts(
        counts=decoded.counts,
        codewords=codewords,
        num_params=3 * J,
        num_active_hat=decoded.num_active_hat,
        soft_counts=decoded.mean,
    )
    for readout in ("integers", "soft", "norm", "unbiased"):
        update = aggregate_output(output, "mean", readout=readout)
        assert torch.isfinite(update).all(), readout
        assert update.abs().max() <= 3 * J * codewords.abs().max()  # at most all devices of the round in one slot
    for repeat in (1, 4):
        combined, copies_noise = combine(case.received.repeat_interleave(repeat, dim=0), repeat)
        assert torch.isfinite(combined).all()
        noise = float(decoded.noise_var.double().mean()) if copies_noise is None else copies_noise
        assert math.isfinite(estimate_snr_db(combined, noise, repeat))


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR)  # a warning for every signal off scale


# the same examples in every run
FEW = settings(max_examples=12, deadline=None, derandomize=True, database=None)
MANY = settings(
    max_examples=600, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.seconds
@pytest.mark.parametrize("name", [*NAMES, *NETS])
@FEW
@given(case=cases())
def test_every_finite_input_has_a_finite_result(name, case):
    check(name, case)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *NETS])
@MANY
@given(case=cases())
def test_many_finite_inputs_have_finite_results(name, case):
    check(name, case)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_bundled_layer_takes_any_signal(scale):
    layer = aircomp.CommunicationLayer.load()
    noise = torch.randn(20, 64, generator=generator(0, "noise"))
    popularity = torch.eye(128)[5]
    check_decoded(layer.decode(scale * noise, popularity), 20, 128)


def test_a_signal_off_scale_is_decoded_as_the_strongest_that_counts(caplog):
    codebook = aircomp.make_codebook("two-bases", 16, 8, rng=generator(0, "codebook"))
    received = 1e30 * codebook[:3]
    with caplog.at_level(logging.WARNING):
        decoded = aircomp.make_decoder("nnls", codebook).decode(received, torch.ones(16))
    assert decoded.num_active == MAX_DEVICES
    assert decoded.counts.argmax(1).tolist() == [0, 1, 2]
    assert "scaled down" in caplog.text
    assert "1e+30" in caplog.text


def test_one_slot_off_scale_leaves_the_others_as_they_are():
    codebook = torch.eye(8)
    received = torch.cat([5 * codebook, 1e30 * codebook[:1]])
    decoded = aircomp.make_decoder("omp", codebook).decode(received, torch.ones(8), num_active=5)
    assert torch.equal(decoded.counts[:8], 5 * torch.eye(8, dtype=torch.int64))


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("name", [*NAMES, *NETS])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"received": torch.zeros(3)}, r"received has shape \(3,\); expected \[slots, 4\]"),
        ({"received": torch.zeros(3, 5)}, r"received has shape \(3, 5\); expected \[slots, 4\]"),
        ({"received": torch.zeros(3, 4, dtype=torch.int64)}, "received is torch.int64; expected float32 or float64"),
        ({"received": [[0.0] * 4]}, "received is list; expected float32 or float64"),
        ({"received": torch.full((3, 4), math.nan)}, "received holds values that are not finite"),
        ({"popularity": torch.ones(5)}, r"popularity has shape \(5,\); expected \[6\]"),
        ({"popularity": None}, r"popularity is NoneType; expected real numbers \[6\]"),
        ({"popularity": -torch.ones(6)}, "popularity is not a distribution"),
        ({"noise_var": "none"}, r"noise_var is str; expected one number or \[3\]"),
        ({"noise_var": torch.ones(2)}, r"noise_var has shape \(2,\); expected one number or \[3\]"),
        ({"noise_var": math.inf}, "noise_var holds values that are negative or not finite"),
        ({"slot_layers": torch.zeros(2, dtype=torch.int64)}, r"slot_layers has shape \(2,\)"),
        ({"bs_indices": torch.full((3,), -1)}, "bs_indices holds -1; expected one non-negative integer"),
        ({"bs_indices": [0, 0, 0]}, "bs_indices is list; expected one non-negative integer"),
    ],
)
def test_what_cannot_be_decoded_is_named(name, wrong, message):
    codebook = torch.nn.functional.normalize(torch.randn(6, 4, generator=generator(0, "codebook")))
    right = {"received": torch.ones(3, 4), "popularity": torch.ones(6)}
    with pytest.raises(ShapeError, match=message):
        make(name, codebook, "round").decode(**(right | wrong))


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("number", [-1, math.nan, math.inf, 2 * MAX_DEVICES, "ten"])
def test_what_is_no_number_of_devices_is_named(number):
    decoder = aircomp.make_decoder("gamp", torch.eye(4))
    shown = "a str" if number == "ten" else number
    with pytest.raises(ConfigError, match=f"num_active is {shown}; expected 0 to {MAX_DEVICES} devices"):
        decoder.decode(torch.ones(3, 4), torch.ones(4), num_active=number)


@pytest.mark.usefixtures("as_in_production")
def test_a_number_of_devices_may_come_from_numpy_and_a_tensor_is_named():
    decoder, signal = aircomp.make_decoder("gamp", torch.eye(4)), torch.ones(3, 4)
    for number in (np.int64(5), np.float32(5), 5):
        assert decoder.decode(signal, torch.ones(4), num_active=number).num_active == 5
    with pytest.raises(ConfigError, match="num_active is a Tensor; expected 0 to"):
        decoder.decode(signal, torch.ones(4), num_active=torch.tensor(5.0))


@pytest.mark.parametrize("name", [*NAMES, *NETS])
def test_a_given_number_of_devices_has_no_error_and_an_estimated_one_has_what_is_known_of_it(name):
    codebook = torch.nn.functional.normalize(torch.randn(6, 8, generator=generator(0, "codebook")))
    received, decoder = 2 * torch.randn(40, 8, generator=generator(0, "received")), make(name, codebook, "round")
    assert decoder.decode(received, torch.ones(6), num_active=3).num_active_error == 0
    error = decoder.decode(received, torch.ones(6)).num_active_error
    if name in ("gamp", "posterior", "net", "net-agreeing"):
        assert 0 < error < math.inf
    else:
        assert error is None


@pytest.mark.parametrize("name", [*NAMES, *NETS])
def test_half_precision_around_a_decoder_changes_nothing(name):
    codebook = torch.nn.functional.normalize(torch.randn(6, 8, generator=generator(0, "codebook")))
    received, decoder = 2 * torch.randn(40, 8, generator=generator(0, "received")), make(name, codebook, "round")
    plain = decoder.decode(received, torch.ones(6))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(decoder.decode(received, torch.ones(6)).mean, plain.mean)


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("codebook", [torch.zeros(0, 4), torch.zeros(4, 0), torch.zeros(4), torch.zeros(3, 4), [[1.0]]])
def test_what_is_no_codebook_is_refused_by_every_decoder(codebook):
    for name in NAMES:
        with pytest.raises(AirCompError, match="codebook"):
            aircomp.make_decoder(name, codebook)
