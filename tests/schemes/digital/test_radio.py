"""The digital link over fading: what arrives in which block, who is refused, and a federated run out of the box."""

import pytest
import torch

import aircomp
from aircomp.channel.base import make_channel
from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.cli.flags import with_full_names
from aircomp.common.radio import GainModel
from aircomp.decoders.base import Decoded
from aircomp.decoders.fading.receiver import joined
from aircomp.encode.codebook import sent_counts
from aircomp.errors import ConfigError, ShapeError
from aircomp.federation.experiment import full_name
from aircomp.layer.blind_net import BlindLayer, BlindNetworks
from aircomp.link import Link, communicate
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings

QUANTIZE = QuantizeSettings(fragment_length=20, num_codewords=32)


def link(name, channel, **settings):
    chosen = SchemeSettings(name=name, quantize=QUANTIZE, codebook="bernoulli", **settings)
    return Link(make_scheme(chosen, SchemeContext(block_uses=64 * 256)), channel)


def fading(control="none", **settings):
    return Fading(ChannelSettings(**{"kind": "fading", "snr_db": 30.0} | settings), PowerSettings(control=control))


def messages(devices, params, rng):
    base, *rest = (torch.randn(1 + devices, params, generator=rng) ** 3).unbind()
    return base, torch.stack(rest)


@pytest.mark.parametrize("repeat", [1, 2])
def test_the_blind_link_counts_what_devices_sent(repeat, rng):
    base, sent = messages(5, 1200, rng)
    exchange = communicate(link("blind", fading(antennas=64, block_slots=2), repeat=repeat), base, sent, {}, 0)
    truth = exchange.sent.reconstruction.mean(dim=0)
    assert float((exchange.update - truth).norm() / truth.norm()) < 0.25
    assert exchange.output.num_active_hat == pytest.approx(5, abs=0.5)
    assert exchange.air.side_information == ()


@pytest.mark.parametrize("name", ["gamp", "widened"])
def test_silence_is_counted_block_by_block(name, rng):
    base, sent = messages(6, 20 * 512, rng)
    faded = link(name, fading("inversion", block_slots=128, snr_db=15.0))
    exchange = communicate(faded, base, sent, {}, 0)
    speaking = exchange.sent.delivered[:, ::128].sum(0)
    assert len(speaking.unique()) > 1, "nobody is silent: choose another seed"
    counted = exchange.output.counts.sum(1).view(4, 128)
    assert torch.equal(counted[:, 0], speaking)
    assert float(faded.scheme.diagnose(exchange.sent, exchange.broadcast, exchange.output)["count_accuracy"]) > 0.95


def test_counts_of_the_silent_are_left_out():
    indices = torch.tensor([[0, 1], [0, 2]])
    delivered = torch.tensor([[True, False], [True, True]])
    assert sent_counts(indices, delivered, 3).tolist() == [[2, 0, 0], [0, 0, 1]]


def test_a_block_in_which_everybody_is_silent_loses_nothing(rng):
    base, sent = messages(3, 800, rng)
    nobody = Fading(ChannelSettings(kind="fading", snr_db=10.0), PowerSettings(control="inversion", threshold=10.0))
    exchange = communicate(link("widened", nobody), base, sent, {}, 0)
    assert not exchange.sent.reconstruction.any()
    assert not exchange.update.any()
    assert float(exchange.air.energy.sum()) == 0


def test_blocks_of_different_numbers_weigh_alike():
    blocks = [Decoded(torch.full((1, 2), k), torch.full((1, 2), float(k)), 2.0 * k, torch.zeros(1)) for k in (1, 3)]
    whole = joined(blocks)
    assert whole.counts.tolist() == [[1, 1], [3, 3]]
    assert whole.mean.tolist() == [[2, 2], [2, 2]]
    assert whole.num_active_hat == 4


def test_an_uplink_that_needs_a_phase_is_refused_without_one(quick, digits):
    with pytest.raises(ConfigError, match=r"uplink = 'gamp' needs signals that arrive in phase"):
        aircomp.simulate(quick, dataset=digits, channel="fading", uplink="gamp")


def test_settings_of_fading_without_fading_are_refused(quick, digits):
    with pytest.raises(ConfigError, match=r"there is no setting channel.antennas with channel.kind = 'awgn'"):
        aircomp.simulate(quick, dataset=digits, uplink="gamp", **{"channel.antennas": 8})
    with pytest.raises(ConfigError, match=r"power.control was given but has no effect"):
        aircomp.simulate(quick, dataset=digits, uplink="gamp", **{"power.control": "inversion"})


def test_an_error_of_csi_that_nobody_uses_is_refused(quick, digits):
    with pytest.raises(ConfigError) as caught:
        aircomp.simulate(
            quick.changed(rounds=0), dataset=digits, channel="fading", **{"channel.errors.csi_correlation": 0.9}
        )
    assert str(caught.value) == (
        "channel.errors.csi_correlation was given but has no effect: power.control = 'none' does not ask what devices know"
    )


def test_odd_codewords_are_refused_in_one_sentence():
    with pytest.raises(ConfigError, match=r"uplink.codeword_length = 63: .* make it even"):
        make_scheme(SchemeSettings(name="blind", quantize=QUANTIZE, codeword_length=63, codebook="gaussian"))


def test_a_complex_codebook_on_a_real_link_is_refused_in_one_sentence(as_in_production):
    with pytest.raises(ShapeError, match=r"codebook is torch.complex64 .*expected a tensor of finite floating-point"):
        aircomp.make_decoder("gamp", torch.eye(4, dtype=torch.complex64))


def test_the_short_name_of_the_channel_is_its_kind():
    words = ["--channel", "fading", "--channel.antennas", "8"]
    assert with_full_names(words, full_name) == ["--channel.kind", "fading", "--channel.antennas", "8"]


def test_a_fading_channel_alone_is_heard_by_the_blind_receiver(quick, digits):
    run = aircomp.simulate(quick.changed(rounds=1), dataset=digits, channel="fading", **{"channel.antennas": 16})
    assert run.row["uplink"] == "blind"
    assert run.row["count_accuracy"] > 0.5
    coherent = aircomp.simulate(
        quick.changed(rounds=1), dataset=digits, channel="fading", **{"power.control": "phase", "snr_db": 20.0}
    )
    assert coherent.row["uplink"] == "widened"


def test_the_model_of_exact_gains_says_so():
    assert GainModel().exact
    assert not GainModel.unknown_phase().exact


def test_power_control_does_not_make_an_uneven_scheme_look_too_loud():
    """Analog spends more in some blocks; behind inversion its power is still what it was meant to be."""
    given = 3 * torch.randn(11, 4000, generator=torch.Generator().manual_seed(0))
    given[:, 1000:] *= 0.01  # nearly all energy in the first quarter
    context = SchemeContext(block_uses=64 * 256, snr_reference="transmit")
    analog = make_scheme(SchemeSettings(name="analog"), context)
    settings = ChannelSettings(kind="fading", block_slots=50, snr_reference="transmit")
    link = Link(analog, make_channel(settings, PowerSettings(control="inversion")))
    air = communicate(link, given[0], given[1:], {}, 0).air
    assert float(air.energy.mean()) == pytest.approx(air.nominal_energy, rel=1e-4)


def test_the_trained_receiver_sends_its_own_codewords_or_drawn_ones():
    own = make_scheme(SchemeSettings(name="blind-net"))
    assert torch.equal(own.link.codebook, BlindLayer.load().codebook)
    small = SchemeSettings(name="blind-net").changed(
        codebook="low-coherence", codeword_length=32, **{"quantize.num_codewords": 16}
    )
    drawn = make_scheme(small)
    assert drawn.link.codebook.shape == (16, 32)
    assert drawn.receiver.blind.learned is not None


def test_trained_codewords_of_another_length_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"codeword_length = 32, but the trained codewords have 64 uses; give a layer"
    ):
        make_scheme(SchemeSettings(name="blind-net").changed(codeword_length=32))
    BlindLayer(BlindNetworks.untrained(128, 32, seed=0)).save(tmp_path)
    fitting = SchemeSettings(name="blind-net").changed(layer=tmp_path)
    assert make_scheme(fitting).link.codebook.shape == (128, 32)
