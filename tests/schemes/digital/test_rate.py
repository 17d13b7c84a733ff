"""Sizes of fragments and codewords chosen by SNR."""

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.errors import ConfigError
from aircomp.federation.simulate import simulate
from aircomp.link import Link, communicate
from aircomp.measure.metrics import vector_nmse
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.digital.rate import short_sizes
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings

FIXED = SchemeSettings(name="gamp", energy="matched")
AUTO = FIXED.changed(rate="auto")
SHORT = short_sizes(AUTO).changed(rate="fixed")


def updates(devices=10, params=4_010):
    """Updates that have something in common; their number of parameters fits neither size."""
    rng = torch.Generator().manual_seed(0)
    return torch.randn(1, params, generator=rng) + 0.5 * torch.randn(devices + 1, params, generator=rng)


def rounds(settings, given, snr_db, number=2, layers=None):
    link = Link(make_scheme(settings, SchemeContext(slot_layers=layers)), Awgn(snr_db, "transmit"))
    memory, done = {}, []
    for index in range(number):
        done.append(communicate(link, given[0], given[1:], memory, index))
        memory = done[-1].memory
    return link, done


@pytest.mark.parametrize(("snr_db", "words"), [(-15.0, 128), (-9.0, 32), (5.0, 32), (float("inf"), 32)])
def test_short_codewords_are_sent_where_the_snr_of_the_last_round_allows(snr_db, words):
    _, done = rounds(AUTO, updates(), snr_db)
    assert [len(each.broadcast.values["codebook"]) for each in done] == [128, words]


def test_short_rounds_are_those_of_a_link_with_short_sizes():
    """Nearly: the noise that the second round knows comes from a long one, and pilots tell it here alone."""
    given = updates()
    auto, short = rounds(AUTO, given, 10.0, 3)[1][2], rounds(SHORT, given, 10.0, 3)[1][2]
    assert torch.equal(auto.broadcast.values["codebook"], short.broadcast.values["codebook"])
    assert vector_nmse(short.update, auto.update) < 0.05


def test_both_sizes_take_the_same_uses_and_energy():
    _, (first, second) = rounds(AUTO, updates(), 10.0)
    assert abs(first.air.channel_uses - second.air.channel_uses) <= 64
    assert first.air.nominal_energy == pytest.approx(second.air.nominal_energy, rel=0.01)
    for done in (first, second):
        assert float(done.air.energy.mean()) == pytest.approx(done.air.nominal_energy, rel=1e-5)


def test_more_of_the_update_arrives_than_with_fixed_sizes():
    given = updates()
    truth = given[1:].mean(dim=0)
    auto, fixed = (rounds(settings, given, 10.0)[1][1] for settings in (AUTO, FIXED))
    assert vector_nmse(truth, auto.update) < 0.9 * vector_nmse(truth, fixed.update)


@pytest.mark.seconds
def test_the_error_of_short_codewords_falls_with_the_noise_to_nothing():
    """Ten devices in 16 uses: message passing alone leaves an NMSE of some hundredths at every SNR."""
    given, found = updates(), []
    for snr_db in (10.0, 20.0, 30.0, float("inf")):
        link, done = rounds(AUTO, given, snr_db)
        found.append(link.scheme.diagnose(done[1].sent, done[1].broadcast, done[1].output))
    errors = [each["update_nmse_soft"] for each in found]
    assert errors[0] < 0.03
    assert max(errors[1:]) < 2e-3
    assert found[-1]["count_accuracy"] > 0.998


def test_layers_tell_the_decoder_of_every_short_slot():
    given, layers = updates(), torch.arange(201) // 50
    link, (_, second) = rounds(AUTO, given, 5.0, layers=layers)
    assert second.private.slot_layers.shape == second.private.quantizer.base_indices.shape
    assert link.scheme.diagnose(second.sent, second.broadcast, second.output)["count_accuracy"] > 0.2


def test_short_codewords_are_of_the_kind_that_was_given():
    assert short_sizes(AUTO.changed(codebook="gaussian")).codebook == "gaussian"
    assert short_sizes(AUTO).codebook == "low-coherence-real"


@pytest.mark.parametrize(
    "given",
    [
        {"uplink.quantize.fragment_length": 10},
        {"uplink.name": "gamp-net", "uplink.rate": "auto"},
        {"channel.kind": "fading", "power.control": "inversion"},
    ],
)
def test_what_cannot_be_chosen_is_refused_before_the_run(given):
    with pytest.raises(ConfigError, match="rate"):
        simulate("digits", rounds=1, **({"uplink.name": "gamp", "uplink.rate": "auto"} | given))


def test_a_federated_run_trains_with_it():
    run = simulate(
        "digits", rounds=2, engine="serial", **{"uplink.name": "gamp", "uplink.rate": "auto", "snr_db": 10.0}
    )
    first, second = (record["downlink_bits"] for record in run.metrics)
    assert second < first / 10  # 32 codewords of 5 numbers in place of 128 of 20
