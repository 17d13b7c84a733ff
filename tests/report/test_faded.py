"""A faded slot: the page shows the gains as they arrive, who is silent, and what was counted."""

import json

import pytest
import torch

from aircomp.channel.settings import ChannelSettings, Inversion, PowerSettings
from aircomp.cli import main
from aircomp.errors import ConfigError
from aircomp.report.faded import FadedSlot, constellation, look_at_slot, rows_of
from aircomp.schemes.digital.drawn import hear_round


def looked(receiver, antennas, slot=5, power="none", **channel):
    settings = ChannelSettings(kind="fading", snr_db=15.0, antennas=antennas, block_slots=32, **channel)
    control = Inversion(threshold=0.5) if power == "inversion" else PowerSettings(control=power)
    return look_at_slot(hear_round(receiver, settings, control, num_active=6, num_slots=64, seed=1), slot)


def test_devices_that_invert_their_gain_arrive_at_one_or_not_at_all():
    slot = looked("widened", 1, power="inversion")
    expected = slot.speaking.to(torch.complex64)
    torch.testing.assert_close(slot.arriving[:, 0], expected, atol=1e-5, rtol=0)
    assert 0 < int(slot.speaking.sum()) < 6  # a threshold of one half silences four of ten
    assert (slot.own[~slot.speaking].abs().square() < 0.5).all()
    assert int(slot.truth.sum()) == int(slot.speaking.sum())


def test_what_was_counted_stands_beside_what_was_sent():
    slot = looked("blind", 64)
    assert slot.round_accuracy > 0.9
    for row in rows_of(slot):
        assert row["devices_on_codeword"] == int((slot.chosen == row["codeword"]).sum())
        assert row["counted"] == int(slot.decoded[row["codeword"]])
    rows = rows_of(slot)
    assert rows[0]["mean_power"] == pytest.approx(float(slot.arriving[0].abs().square().mean()))


def test_another_block_has_other_gains():
    first, same, later = (looked("blind", 4, slot=slot).arriving for slot in (5, 31, 32))
    assert torch.equal(first, same)
    assert not torch.equal(first, later)


def test_devices_are_drawn_by_what_became_of_them_and_those_in_one_place_once():
    slot = FadedSlot(
        chosen=torch.tensor([0, 0, 1, 2, 3]),
        arriving=torch.tensor([1.0, 1.0, 1.0j, 0.0, -1.0]).to(torch.complex64)[:, None],
        own=torch.tensor([2.0, 2.0, 2.0, 0.1, 2.0]).to(torch.complex64),
        speaking=torch.tensor([True, True, True, False, True]),
        truth=torch.tensor([2, 1, 0, 1]),
        soft=torch.tensor([2.0, 0.4, 0.0, 1.6]),
        decoded=torch.tensor([2, 0, 0, 2]),
        round_accuracy=0.5,
    )
    drawn = constellation(slot)
    assert drawn["codeword counted in full"] == [(1.0, 0.0, "1, 2")]
    assert drawn["codeword counted too low"] == [(0.0, 1.0, "3")]
    assert drawn["codeword counted too high"] == [(-1.0, 0.0, "5")]
    assert drawn["silent (its own gain)"] == [(pytest.approx(0.1), 0.0, "4")]


@pytest.mark.seconds
def test_the_command_writes_a_page_and_the_numbers(tmp_path, capsys):
    main(["explain", "--channel", "fading", "--channel.antennas", "4", "--num-active", "3", "--out", str(tmp_path)])
    page = (tmp_path / "report.html").read_text()
    assert page.count("<figure>") == 2
    assert "aircomp explain --channel fading --channel.antennas 4 --num-active 3<" in page
    written = json.loads((tmp_path / "result.json").read_text())
    assert [row["device"] for row in written["rows"]] == [1, 2, 3]
    assert written["config"]["channel"]["antennas"] == 4
    assert "report.html" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--channel.antennas", "8"],
            "there is no setting channel.antennas with channel.kind = 'awgn'",
        ),
        (["--uplink", "blind"], "add --channel fading"),
        (["--channel", "fading", "--uplink", "gamp"], "gamp"),
        (["--channel", "fading", "--uplink", "widened"], "needs signals that arrive in phase"),
        (["--channel", "fading", "--uplink", "refined-analog"], "a plan in white noise only"),
        (["--channel", "fading", "--layer", "nowhere"], "receivers for fading take no trained layer"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(words, said, tmp_path, monkeypatch):
    from aircomp.cli.explain import run

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        run(words)
    assert list(tmp_path.iterdir()) == []
