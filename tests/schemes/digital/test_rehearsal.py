"""The calibrated readout: the response of the decoder is measured on simulated slots, and taken out."""

import pytest
import torch

from aircomp.aggregation.readout import MOST_STRETCH, calibrated
from aircomp.channel.awgn import Awgn
from aircomp.link import Link, communicate
from aircomp.measure.metrics import vector_gain
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.digital import rehearsal
from aircomp.schemes.digital.decoders import decoder_names, trained_decoders
from aircomp.schemes.outputs import aggregate_output
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings

SMALL = QuantizeSettings(fragment_length=4, num_codewords=16)


def exchanged(name="gamp", snr_db=0.0, params=8_000, devices=8, rounds=1, common=0.0, **options):
    rng = torch.Generator().manual_seed(3)
    messages = torch.randn(devices + 1, params, generator=rng) ** 3
    messages[1:] += common * messages[0]
    drawn = {} if name == "perfect" else {"codebook": "two-bases"}
    settings = SchemeSettings(name=name, quantize=SMALL, codeword_length=16, **drawn)
    context = {name: options.pop(name) for name in ("include_base_station",) if name in options}
    uplink = make_scheme(settings.changed(**options), SchemeContext(snr_reference="transmit", **context))
    memory, done = {}, None
    for index in range(rounds):
        done = communicate(Link(uplink, Awgn(snr_db, "transmit")), messages[0], messages[1:], memory, index)
        memory = done.memory
    return done


def gain(exchange, readout):
    found = aggregate_output(exchange.output, "mean", readout=readout)
    return vector_gain(exchange.sent.reconstruction.double().mean(0), found.double())


def along_axes(exchange, readout):
    """Return the gain of a readout along every axis of a fragment."""
    found = aggregate_output(exchange.output, "mean", readout=readout).reshape(-1, 4)
    truth, asked = exchange.sent.reconstruction.mean(0).reshape(-1, 4), exchange.output.asked
    truth, found = (truth, found) if asked is None else (truth[asked], found[asked])
    return torch.linalg.lstsq(truth - truth.mean(0), found - found.mean(0)).solution.diagonal()


def response(weakest):
    """Return a gain matrix whose directions are no axes."""
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64))[0]
    return turn @ torch.diag(torch.tensor([0.9, 0.4, weakest], dtype=torch.float64)) @ turn.T


def test_a_linear_response_is_undone(rng):
    slots, truth = (torch.randn(n, 3, generator=rng, dtype=torch.float64) + 2 for n in (50, 200))
    matrix, offset = response(0.2), torch.tensor([0.5, -1.0, 3.0], dtype=torch.float64)
    found = calibrated(slots @ matrix + offset, truth @ matrix + offset, truth)
    torch.testing.assert_close(found, slots, rtol=1e-4, atol=1e-4)


def test_no_direction_is_lengthened_beyond_the_limit(rng):
    truth = torch.randn(200, 3, generator=rng, dtype=torch.float64)
    matrix = response(1e-4)
    found = calibrated(truth @ matrix, truth @ matrix, truth)
    kept = torch.linalg.svdvals(torch.linalg.lstsq(truth - truth.mean(0), found - found.mean(0)).solution)
    torch.testing.assert_close(float(kept[-1]), 1e-4 * MOST_STRETCH, rtol=0.01, atol=0)


def test_a_direction_that_simulated_slots_do_not_have_keeps_its_length(rng):
    truth = torch.randn(100, 3, generator=rng, dtype=torch.float64)
    truth[:, 2] = 0
    update = torch.randn(20, 3, generator=rng, dtype=torch.float64)
    found = calibrated(update, truth / 2, truth)
    torch.testing.assert_close(found[:, 2], update[:, 2], rtol=1e-6, atol=1e-9)
    assert torch.equal(calibrated(update, 0 * truth, 0 * truth), update)


@pytest.mark.parametrize("options", [{}, {"energy": "matched", "rounds": 2}, {"repeat": 2}])
def test_the_calibrated_mean_is_not_shrunk_along_any_direction(options):
    """Two thousand slots, or half of them: at their NMSE of about one a gain along an axis scatters by up to a tenth."""
    exchange = exchanged(snr_db=0.0, **options)
    assert gain(exchange, "soft") < 0.85
    assert gain(exchange, "calibrated") == pytest.approx(1, abs=0.2)
    soft, found = (along_axes(exchange, readout).sub(1).abs() for readout in ("soft", "calibrated"))
    assert found.max() < min(0.3, float(soft.max()))


def test_without_noise_nothing_changes():
    exchange = exchanged(snr_db=200.0, params=402)
    found = aggregate_output(exchange.output, "mean", readout="calibrated")
    torch.testing.assert_close(found, exchange.sent.reconstruction.mean(0), rtol=1e-4, atol=1e-4)


def test_the_base_stations_own_update_joins_after_calibration():
    exchange = exchanged(snr_db=200.0, params=402, include_base_station=True)
    found = aggregate_output(exchange.output, "mean", readout="calibrated")
    torch.testing.assert_close(
        found, aggregate_output(exchange.output, "mean", readout="integers"), rtol=1e-4, atol=1e-4
    )


def test_a_rehearsal_has_the_same_bits_every_time():
    output = exchanged(params=402).output
    torch.rand(3)  # global generators have no say
    first, second = (aggregate_output(output, "mean", readout="calibrated") for _ in range(2))
    assert torch.equal(first, second)


def test_a_rehearsal_has_so_many_slots_and_the_strongest_among_them(monkeypatch):
    monkeypatch.setattr(rehearsal, "MOST_SLOTS", 100)
    # the base station's own codeword tells where energy is: 1.39 times as much, give or take 0.08 by the seed
    output = exchanged(params=4_000, common=1.0).output
    counts, heard = output.rehearse()
    assert counts.shape == heard.shape
    assert 50 <= len(counts) <= 100
    expected, everywhere = (float((c @ output.codewords.square().sum(1)).mean()) for c in (counts, output.soft_counts))
    assert expected > 1.1 * everywhere


def test_nobody_is_heard_as_nobody():
    output = exchanged(params=402, snr_db=float("inf"), devices=1).output
    silent = type(output)(
        counts=0 * output.counts,
        codewords=output.codewords,
        num_params=402,
        soft_counts=0 * output.soft_counts,
        rehearse=lambda: None,
    )
    assert not aggregate_output(silent, "mean", readout="calibrated").any()


def test_a_scheme_that_simulates_no_slots_reads_out_the_unbiased_mean():
    output = exchanged("perfect", params=402).output
    both = [aggregate_output(output, "mean", readout=readout) for readout in ("calibrated", "unbiased")]
    assert torch.equal(*both)


@pytest.mark.parametrize("name", [n for n in decoder_names() if n not in ("genie", *trained_decoders())])
def test_every_decoder_can_be_rehearsed(name):
    output = exchanged(name, params=402, snr_db=5.0).output
    found = aggregate_output(output, "mean", readout="calibrated")
    assert found.isfinite().all()
    assert not torch.equal(found, aggregate_output(output, "mean", readout="soft"))
