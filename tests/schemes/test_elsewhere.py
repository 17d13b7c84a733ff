"""Schemes compute where the messages are: on a GPU that is made up they find what they find here."""

import pytest
import torch

from aircomp.channel.awgn import Awgn
from aircomp.channel.fading import Fading
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.decoders.fading.semi_blind import cluster
from aircomp.link import Link, communicate
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.outputs import Vote
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings
from helpers.draws import seeded
from helpers.elsewhere import GPU, Elsewhere

DEVICES, PARAMS = 4, 240
AWGN = ("learned-analog", "hybrid", "capacity", "tdma-vq", "channelcomp", "sumcomp", "computation-rate")
FADING = ("covariance", "receiver-csi", "blind-analog", "fsk-mv", "reed")
IN_PHASE = ("analog", "a-dsgd", "obda")
SLOW = {"gamp": None, "gamp-net": None, "joint-net": None, "blind": "none", "tuma": "none"}
SLOW |= {"md-aircomp": "inversion", "widened": "inversion"}
"""Schemes of many small operations, each of which takes the detour: half a minute in all."""
SOME = SchemeSettings(name="channelcomp", codeword_length=16)
"""Without room for all parameters a round carries some of them."""
CASES = [(name, None) for name in (*AWGN, SOME)]
CASES += [(name, "none") for name in FADING] + [(name, "inversion") for name in IN_PHASE]
CASES += [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW.items()]


def two_rounds(name, control, device):
    """Return the update of the second round, which follows what the first left."""
    settings = ChannelSettings(kind="fading", snr_db=10.0, antennas=4, block_slots=10)
    channel = Awgn(10.0) if control is None else Fading(settings, PowerSettings(control=control))
    layers = (torch.arange(PARAMS // 20) // 3).to(device)
    uplink = make_scheme(
        name, SchemeContext(layers, device=device, block_uses=0 if control is None else channel.block_uses)
    )
    link = Link(uplink, channel, "sign-vote" if uplink.offers is Vote else "mean")
    base, *messages = (torch.randn(1 + DEVICES, PARAMS, generator=seeded(1)) ** 3).to(device).unbind()
    first = communicate(link, base, torch.stack(messages), {}, 0)
    second = communicate(link, base, torch.stack(messages), first.memory, 1)
    uplink.diagnose(second.sent, second.broadcast, second.output)
    return second.update


@pytest.mark.seconds
@pytest.mark.parametrize(("name", "control"), CASES)
def test_a_scheme_computes_where_the_messages_are(name, control):
    here = two_rounds(name, control, "cpu")
    with Elsewhere():
        there = two_rounds(name, control, GPU)
        assert there.device == GPU
        torch.testing.assert_close(there.cpu(), here, rtol=1e-3, atol=1e-4)  # kernels of our own are for the CPU


def test_clusters_are_found_where_the_samples_are():
    samples = torch.randn(40, 4, dtype=torch.complex64, generator=seeded(2))
    here = cluster(samples, 3, rng=seeded(3))
    with Elsewhere():
        there = cluster(samples.to(GPU), 3, rng=seeded(3))
        assert there.device == GPU
        torch.testing.assert_close(there.cpu(), here)


def test_what_a_gpu_refuses_is_refused():
    with Elsewhere():
        there = torch.ones(3).to(GPU)
        assert (there + 1).device == GPU
        assert there[torch.tensor([0])].tolist() == [1.0]
        with pytest.raises(RuntimeError, match="on the CPU and on a GPU"):
            there + torch.ones(3)
        with pytest.raises(RuntimeError, match="on the CPU and on a GPU"):
            torch.ones(3)[there.long()]
        with pytest.raises(RuntimeError, match="works on the CPU"):
            torch.multinomial(there, 1, generator=seeded())
