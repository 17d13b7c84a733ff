import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.channel.snr import ChannelSettings
from aircomp.decoders import make_decoder
from aircomp.encode.codebook import EncodeSettings, encode, make_codebook
from aircomp.errors import ConfigError
from aircomp.link import DigitalUplink
from aircomp.quantize.codebook import QuantizeSettings
from aircomp.uplinks.base import Reception, aggregate_reception
from aircomp.uplinks.schemes import make_uplink, uplink_names

SMALL = QuantizeSettings(fragment_length=4, num_codewords=16)


def heavy_tailed(devices, params, rng):
    return torch.randn(devices, params, generator=rng) ** 3


def small_link(name="gamp", snr_db=200.0, **options):
    return make_uplink(
        name,
        quantize=SMALL,
        encode=EncodeSettings(codebook="two-bases", codeword_length=16),
        channel=ChannelSettings(snr_db=snr_db),
        **options,
    )


def send(uplink, messages, base, seed=0):
    announced = uplink.broadcast(base, rng=torch.Generator().manual_seed(seed))
    encoded = uplink.encode(messages, announced)
    received = uplink.transmit(encoded, announced, rng=torch.Generator().manual_seed(seed + 1))
    return announced, encoded, uplink.decode(received, announced)


@pytest.mark.parametrize("name", [n for n in uplink_names() if n not in ("ideal", "amp-da-net")])
def test_without_noise_the_link_delivers_the_mean_of_the_quantised_messages(name, rng):
    messages, base = heavy_tailed(5, 403, rng), heavy_tailed(1, 403, rng)[0]
    uplink = small_link(name)
    _, encoded, reception = send(uplink, messages, base)
    update = aggregate_reception(reception, "mean", 0.8)
    # a sum of five codewords in another order: float32 rounding of entries up to about 30
    torch.testing.assert_close(update, encoded.reconstruction.mean(dim=0), rtol=1e-5, atol=1e-5)
    assert round(reception.num_active_hat) == 5


def test_the_air_carries_the_sum_of_the_devices_codewords(rng):
    messages, base = heavy_tailed(5, 403, rng), heavy_tailed(1, 403, rng)[0]
    codebook = make_codebook("gaussian", 16, 8, rng=rng)
    uplink = DigitalUplink("mine", codebook, make_decoder("gamp", codebook), Awgn(float("inf")), SMALL)
    announced = uplink.broadcast(base, rng=rng)
    encoded = uplink.encode(messages, announced)
    received = uplink.transmit(encoded, announced, rng=rng)
    expected = encode(encoded.payload, codebook).sum(dim=0)
    torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-6)  # float32 sums of five terms


def test_the_base_station_joins_the_counts_with_its_own_codeword(rng):
    messages, base = heavy_tailed(3, 403, rng), heavy_tailed(1, 403, rng)[0]
    _, _, alone = send(small_link("perfect"), messages, base)
    announced, _, joined = send(small_link("perfect", include_base_station=True), messages, base)
    extra = joined.counts - alone.counts
    assert torch.equal(extra.argmax(dim=1), announced.quantizer.base_indices)
    assert (extra.sum(dim=1) == 1).all()


def test_diagnosis_reports_perfect_numbers_for_a_perfect_link(rng):
    uplink = small_link("perfect")
    announced, encoded, reception = send(uplink, heavy_tailed(4, 403, rng), heavy_tailed(1, 403, rng)[0])
    measured = uplink.diagnose(encoded, announced, reception)
    assert (measured["accuracy"], measured["update_nmse"], measured["pupe"]) == (1.0, 0.0, 0.0)


def test_noise_costs_accuracy(rng):
    messages, base = heavy_tailed(8, 4003, rng), heavy_tailed(1, 4003, rng)[0]
    accuracies = []
    for snr_db in (-10.0, 5.0, 30.0):
        uplink = small_link("gamp", snr_db)
        announced, encoded, reception = send(uplink, messages, base)
        accuracies.append(uplink.diagnose(encoded, announced, reception)["accuracy"])
    assert accuracies[0] < accuracies[1] < accuracies[2]


def test_the_cost_is_the_papers(rng):
    uplink = make_uplink("amp-da", quantize=QuantizeSettings(), encode=EncodeSettings(), channel=ChannelSettings())
    cost = uplink.cost(269_722, 10)
    assert (cost.num_slots, cost.channel_uses) == (13_487, 863_168)


def test_codebooks_of_different_sizes_are_refused(rng):
    codebook = make_codebook("gaussian", 8, 8, rng=rng)
    with pytest.raises(ConfigError, match="num_codewords = 16, but the random-access codebook has 8"):
        DigitalUplink("mine", codebook, make_decoder("gamp", codebook), Awgn(10.0), SMALL)


def test_a_rule_that_the_scheme_cannot_serve_is_refused():
    mean_only = Reception(num_params=3, num_active_hat=2.0, mean=torch.ones(3))
    assert torch.equal(aggregate_reception(mean_only, "mean", 0.8), torch.ones(3))
    with pytest.raises(ConfigError, match="offers the mean"):
        aggregate_reception(mean_only, "majority-vote", 0.8)
