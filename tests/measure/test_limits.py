"""Limits of theory against numbers that were worked out elsewhere, and against each other."""

import math

import pytest

from aircomp.measure.limits import cut_set, modulo_lattice
from aircomp.studies.arena_page import figure_of, limits_of
from aircomp.studies.ranking import MEASURES
from aircomp.studies.study import find_challenge

DEVICES, CORRELATION, USES = 10, 0.2, 3.2


def decibels(limit, snr_db):
    return 10 * math.log10(limit(snr_db, DEVICES, CORRELATION, USES))


@pytest.mark.parametrize(("snr_db", "found"), [(-10, -3.4), (5, -18.9), (10, -24.8), (15, -34.9), (20, -48.4)])
def test_the_cut_set_is_that_of_the_specification(snr_db, found):
    assert decibels(cut_set, snr_db) == pytest.approx(found, abs=0.06)  # printed with one decimal


@pytest.mark.parametrize(("snr_db", "found"), [(-10, -2.8), (-5, -5.8), (0, -10.0), (5, -14.7)])
def test_below_the_number_of_devices_a_lattice_adds_nothing_to_uncoded_transmission(snr_db, found):
    uncoded = 10 * math.log10(1 / (1 + USES * 10 ** (snr_db / 10) * (1 + (DEVICES - 1) * CORRELATION)))
    assert decibels(modulo_lattice, snr_db) == pytest.approx(uncoded, abs=1e-9)
    assert uncoded == pytest.approx(found, abs=0.06)


@pytest.mark.parametrize("devices", [1, 2, 10, 100])
@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.9])
def test_nothing_is_below_the_cut_set(devices, correlation):
    for snr_db in range(-20, 31, 5):
        for uses in (0.1, 1.0, 3.2):
            given = (float(snr_db), devices, correlation, uses)
            assert cut_set(*given) <= modulo_lattice(*given) * (1 + 1e-9)


def test_lines_of_theory_are_drawn_where_the_theory_holds():
    def drawn(name):
        challenge = find_challenge(name)
        return limits_of(challenge, [{"value": value, "update_correlation": 0.2} for value in challenge.values])

    white = drawn("awgn")["cut-set, Gaussian"]
    assert white[4] == (10.0, pytest.approx(cut_set(10.0, 10, 0.2, 3.2)))
    assert [drawn(name) for name in ("phase", "awgn-cap", "byzantine", "bursts")] == [{}] * 4


def test_a_figure_has_a_panel_a_family_and_names_every_line_beside_it():
    rows = [
        {"scheme": name, "value": value, "raw_nmse": 0.1 * (1 + place), "update_correlation": 0.2}
        for place, name in enumerate(("own-update", "analog", "baa", "digital"))
        for value in (-10.0, 20.0)
    ]
    figure = figure_of(find_challenge("awgn"), rows, MEASURES["round"])
    assert figure is not None
    for text in (
        "parameters, all at once",
        "codewords, all at once",
        "own-update",
        "analog",
        "baa",
        "digital",
        "cut-set",
    ):
        assert text in figure.svg
    assert "bits, in turns" not in figure.svg
    assert figure.svg.count(">own-update<") == 2  # in every panel, without a legend
