"""Updates with fragments of very different length, sent twice, and the error of what was decoded."""

import torch

from aircomp.channel.awgn import Awgn
from aircomp.encode.codebook import count
from aircomp.link import Link, communicate
from aircomp.schemes.registry import make_scheme


def updates(seed=0, devices=10, params=12_000, spread=1.5, own=0.5):
    """Fragments of different length (`spread`: of its logarithm), alike in all devices but for what each adds (`own`)."""
    rng = torch.Generator().manual_seed(seed)
    lengths = torch.exp(spread * torch.randn(params // 20, generator=rng)).repeat_interleave(20)
    common = torch.randn(1, params, generator=rng)
    return (common + own * torch.randn(devices + 1, params, generator=rng)) * lengths


def two_rounds(settings, given, snr_db, seed=0):
    """Send the same twice: in the second round the base station knows its noise."""
    link = Link(make_scheme(settings), Awgn(snr_db, "transmit"), seed=seed)
    first = communicate(link, given[0], given[1:], {}, 0)
    return communicate(link, given[0], given[1:], first.memory, 1)


def soft_error(done):
    output, signal = done.output, done.sent.signal
    indices = getattr(signal, "data", signal).indices
    truth = count(indices, len(output.codewords)).float() @ output.codewords
    soft = output.soft_counts @ output.codewords
    return float((soft - truth).square().sum() / truth.square().sum())
