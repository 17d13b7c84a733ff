import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.common.rng import generator
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.base import check_groups
from aircomp.decoders.net.gamp_net import GampNet, GampNetDecoder
from aircomp.decoders.settings import GampNetSettings, GampSettings
from aircomp.decoders.side import STRENGTH, slot_rates
from aircomp.encode.codebook import count, make_codebook
from aircomp.errors import ShapeError
from aircomp.measure.metrics import count_accuracy
from helpers.draws import add_noise

CODEBOOK = make_codebook("two-bases", 64, 32, rng=generator(0, "codebook"))
NET = GampNet(GampNetSettings(num_layers=8, filters=4)).eval().requires_grad_(False)


def plain_slot_rates(mean, rate, *groupings):
    """Slot by slot and group by group, as the module's docstring says."""
    pi = rate / rate.sum()
    found = []
    for s in range(len(mean)):
        share = pi.clone()
        for groups in groupings:
            total = STRENGTH * pi + sum(mean[t] for t in range(len(mean)) if groups[t] == groups[s])
            share *= total / total.sum() / pi
        found.append(rate.sum() * share / share.sum())
    return torch.stack(found)


def draw_round(num_slots=900, num_active=8, snr_db=2.0):
    """A round of three layers, each of which prefers other codewords, and a base station that chooses as devices do."""
    rng = generator(0, "round with layers")
    layers = torch.arange(num_slots) * 3 // num_slots
    shares = torch.rand(3, 64, generator=rng) ** 8
    indices = torch.multinomial(shares[layers], num_active + 1, replacement=True, generator=rng).T
    counts = count(indices[1:], 64)
    received, _ = add_noise(counts, CODEBOOK, snr_db, rng=rng)
    return received, shares.mean(0), counts, layers, indices[0]


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 3))
@settings(deadline=None, max_examples=30)
def test_rates_equal_plain_and_keep_their_sum(seed, num_slots, num_groupings):
    rng = torch.Generator().manual_seed(seed)
    mean, rate = torch.rand(num_slots, 7, generator=rng), 5 * torch.rand(7, generator=rng) + 0.1
    groupings = [torch.randint(0, 3, (num_slots,), generator=rng) for _ in range(num_groupings)]
    found = slot_rates(mean, rate, *groupings)
    torch.testing.assert_close(found, plain_slot_rates(mean, rate, *groupings), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.sum(1), rate.sum().expand(num_slots), rtol=1e-5, atol=0)


def test_without_groups_all_slots_expect_the_same():
    rate = torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(slot_rates(torch.rand(4, 3), rate, None, None), rate.expand(4, 3), rtol=1e-6, atol=0)


@pytest.mark.seconds
@pytest.mark.parametrize(
    "decoder", [Gamp(CODEBOOK, GampSettings(agreement=0.0)), GampNetDecoder(NET, CODEBOOK)], ids=["gamp", "gamp-net"]
)
def test_knowing_the_layer_or_the_own_codeword_helps_where_layers_differ(decoder):
    received, popularity, counts, layers, own = draw_round()
    known = {"none": {}, "layer": {"slot_layers": layers}, "own": {"bs_indices": own}}
    known["both"] = known["layer"] | known["own"]
    found = {
        n: count_accuracy(counts, decoder.decode(received, popularity, **side).counts) for n, side in known.items()
    }
    assert found["layer"] > found["none"] + 0.05
    assert found["own"] > found["none"] + 0.005
    assert found["both"] > found["none"] + 0.05


@pytest.mark.parametrize("decoder", [Gamp(CODEBOOK), GampNetDecoder(NET, CODEBOOK)], ids=["gamp", "net"])
def test_the_chunk_does_not_matter(decoder, monkeypatch):
    received, popularity, _, layers, own = draw_round(num_slots=200)
    found = []
    for chunk in (33, 200):
        monkeypatch.setattr("aircomp.decoders.estimate.pilot.CHUNK", chunk * len(CODEBOOK))
        monkeypatch.setattr("aircomp.decoders.net.gamp_net.CHUNK", chunk)
        found.append(decoder.decode(received, popularity, slot_layers=layers, bs_indices=own))
    a, b = found
    # float32 products of other heights round differently
    torch.testing.assert_close(a.mean, b.mean, rtol=0, atol=1e-4)
    assert a.num_active_hat == pytest.approx(b.num_active_hat, abs=1e-4)


@pytest.mark.parametrize(
    "layers",
    [torch.zeros(5, dtype=torch.long), torch.zeros(200), torch.full((200,), -1)],
    ids=["short", "real", "negative"],
)
def test_what_is_not_a_group_for_every_slot_is_refused(layers):
    with pytest.raises(
        ShapeError, match=r"side information (has shape|holds -1).*expected one non-negative integer for each of 200"
    ):
        check_groups(layers, 200)
