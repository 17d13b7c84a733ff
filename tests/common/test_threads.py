import threading
import time

import pytest
import torch

from aircomp.common.rng import generator
from aircomp.common.threads import one_thread, spread, whole_cores
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.net.gamp_net import GampNet, GampNetDecoder
from aircomp.decoders.settings import GampNetSettings
from aircomp.encode.codebook import make_codebook
from helpers.draws import zipf_round


@pytest.fixture
def threads():
    """Let a test set torch's threads, and set them back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_items_come_back_in_their_order_whoever_was_first(threads):
    threads(4)

    def slow(i, j):
        time.sleep(0.02 * (i == 0))
        return i, j

    assert spread(slow, range(6), "abcdef") == list(zip(range(6), "abcdef", strict=True))


def test_as_many_threads_as_torch_has_share_the_items_and_every_kernel_has_one(threads):
    threads(3)
    together = threading.Barrier(3, timeout=20)  # passed only if three are there at a time

    def meet(_):
        together.wait()
        return torch.get_num_threads(), torch.is_grad_enabled()

    with torch.no_grad():
        assert spread(meet, range(3)) == [(1, False)] * 3
    assert torch.get_num_threads() == 3


def test_within_one_thread_nothing_is_spread(threads):
    threads(2)
    with one_thread():
        assert spread(lambda _: threading.current_thread(), range(3)) == [threading.current_thread()] * 3
    assert torch.get_num_threads() == 2


def test_threads_are_kept_from_call_to_call_and_end_with_the_block(threads):
    threads(2)
    before = threading.active_count()
    with torch.no_grad(), whole_cores():
        found = [set(spread(lambda _: time.sleep(0.005) or threading.get_ident(), range(8))) for _ in range(3)]
        assert threading.active_count() == before + 1  # who asks works too
    assert len(set.union(*found)) == 2
    assert threading.active_count() == before


def test_autograds_graph_is_built_by_the_thread_that_asks_for_it(threads):
    threads(2)
    assert spread(lambda _: threading.current_thread(), range(3)) == [threading.current_thread()] * 3


def test_an_error_in_a_thread_is_raised_here(threads):
    threads(2)

    def fail(i):
        if i == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"), torch.no_grad():
        spread(fail, range(5))
    assert torch.get_num_threads() == 2


def test_after_an_error_nobody_takes_another_item(threads):
    threads(2)
    done = []

    def fail_at_first(i):
        if i == 0:
            raise ValueError("zero")
        time.sleep(0.02)
        done.append(i)

    with pytest.raises(ValueError, match="zero"), torch.no_grad():
        spread(fail_at_first, range(50))
    assert len(done) < 3


def test_every_thread_is_in_the_callers_inference_mode(threads):
    threads(3)
    together = threading.Barrier(3, timeout=20)

    def meet(_):
        together.wait()
        return torch.is_inference_mode_enabled()

    with torch.inference_mode():
        assert spread(meet, range(3)) == [True] * 3
    with torch.no_grad():
        assert spread(meet, range(3)) == [False] * 3


@pytest.mark.parametrize("name", ["gamp", "gamp-net"])
def test_decoded_rounds_have_the_same_bits_for_any_number_of_threads(name, threads):
    codebook = make_codebook("two-bases", 128, 64, rng=generator(0, "codebook"))
    received, popularity, _, _ = zipf_round(1300, 9, 3.0, codebook=codebook, reference="slot")
    net = GampNet(GampNetSettings(num_layers=2, filters=4))
    decoder = Gamp(codebook) if name == "gamp" else GampNetDecoder(net, codebook)
    found = []
    for number in (1, 2, 3):
        threads(number)
        found.append(decoder.decode(received, popularity, slot_layers=torch.arange(1300) // 400))
    for other in found[1:]:
        assert torch.equal(other.mean, found[0].mean)
        assert torch.equal(other.counts, found[0].counts)
        assert other.num_active_hat == found[0].num_active_hat
