import json

import pytest
import torch

from aircomp.channel.awgn import transmit
from aircomp.cli import main
from aircomp.common.rng import generator
from aircomp.decoders.net.gamp_net import GampNet
from aircomp.decoders.settings import GampNetSettings
from aircomp.encode.codebook import count, make_codebook
from aircomp.layer.communication import CommunicationLayer
from aircomp.measure.limits import modulo_lattice
from aircomp.measure.metrics import count_accuracy
from aircomp.report.explain import planned_round, trace_slot
from aircomp.schemes.digital.drawn import drawn_choices

LAYER = CommunicationLayer(
    make_codebook("two-bases", 64, 32, rng=generator(0, "codebook")),
    GampNet(GampNetSettings(num_layers=4, filters=4, agreement=0.03)).eval().requires_grad_(False),
)


def test_a_trace_begins_with_the_prior_and_ends_with_what_the_decoder_says():
    chosen, popularity = drawn_choices(64, num_active=4, num_slots=300, seed=1)
    counts = count(chosen, 64)
    trace = trace_slot(LAYER, chosen, popularity, snr_db=15.0, slot=3, seed=1)
    assert trace.estimates.shape == (5, 64)
    assert torch.equal(trace.truth, counts[3])
    torch.testing.assert_close(trace.estimates[0] / trace.estimates[0].sum(), popularity, rtol=1, atol=0.05)
    assert torch.equal(trace.decoded, counts[3])  # 15 dB is easy
    assert trace.residuals[-1] < 0.3 * trace.residuals[0]
    assert trace.round_accuracy[-1] > 0.95 > trace.round_accuracy[0]
    hard = trace_slot(LAYER, chosen, popularity, snr_db=2.0, slot=3, seed=1)
    received = transmit(counts, LAYER.codebook, snr_db=2.0, rng=generator(1, "explained noise"))
    decoded = LAYER.decode(received, popularity)
    assert hard.round_accuracy[-1] == count_accuracy(counts, decoded.counts)
    assert torch.equal(hard.decoded, decoded.counts[3])


def test_the_last_state_of_a_trace_is_what_is_decoded():
    chosen, popularity = drawn_choices(64, num_active=4, num_slots=300, seed=1)
    received = count(chosen, 64).float() @ LAYER.codebook + 0.1 * torch.randn(300, 32, generator=generator(0, "noise"))
    states = LAYER.trace(received, popularity)
    assert len(states) == 4
    torch.testing.assert_close(
        states[-1].x_hat.clamp(min=0), LAYER.decode(received, popularity).mean, rtol=0, atol=1e-5
    )
    assert not torch.allclose(states[0].x_hat, states[-1].x_hat, atol=1e-2)


@pytest.mark.seconds
def test_the_command_writes_a_page_and_the_numbers(tmp_path, capsys):
    LAYER.save(tmp_path / "layer")
    main(["explain", "--layer", str(tmp_path / "layer"), "--num-active", "4", "--out", str(tmp_path / "out")])
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("<figure>") == 4
    rows = json.loads((tmp_path / "out" / "result.json").read_text())["rows"]
    assert [row["layer"] for row in rows] == [0, 1, 2, 3, 4]
    said = capsys.readouterr().out
    assert "report.html" in said
    assert "count accuracy, whole round" in said  # beside numbers of one slot


def test_a_plan_has_modulo_stages_where_one_device_alone_is_heard_well():
    alone, _ = planned_round(snr_db=5.0, num_active=10, seed=0)
    refined, nmse = planned_round(snr_db=20.0, num_active=10, seed=0)
    assert [row["b"] for row in alone] == [None]
    assert len(refined) == 3
    assert sum(row["share_of_energy"] for row in refined) == pytest.approx(1.0)
    assert refined[1]["b"] < refined[2]["b"]
    # trellis, margins for unknown noise and pilots lose 5.5 to 7 dB beside the ideal lattice (docs/concepts/codes.md)
    assert nmse < 10**0.75 * modulo_lattice(20.0, 10, 0.2, 3.2)


def test_the_command_shows_the_plan(tmp_path, capsys):
    main(["explain", "--uplink", "refined-analog", "--snr-db", "20", "--out", str(tmp_path / "out")])
    rows = json.loads((tmp_path / "out" / "result.json").read_text())["rows"]
    assert [row["stage"] for row in rows] == [0, 1, 2]
    assert "share of energy" in capsys.readouterr().out
    assert "Stage by stage" in (tmp_path / "out" / "report.html").read_text()
