"""Words of several devices, added up behind noise."""

import torch

from aircomp.decoders import ldpc
from aircomp.decoders.digit_sums import sum_prior
from aircomp.decoders.lattice_sums import residues


def sent_words(code, devices, words, seed=0, levels=None):
    """The codewords of every device; information symbols have so many levels, all that there are by default."""
    rng = torch.Generator().manual_seed(seed)
    return code.encode(torch.randint(levels or code.prime, (devices, words, code.graph.information), generator=rng))


def decoded(code, sent, snr_db, seed=1):
    """Decode equally likely points of energy (p² − 1)/12 at the SNR of one device; the words, and which of them are right."""
    rng = torch.Generator().manual_seed(seed)
    noise_var = (code.prime**2 - 1) / 12 / 10 ** (snr_db / 10)
    total = sent.sum(dim=0)
    heard = total.float() + noise_var**0.5 * torch.randn(total.shape, generator=rng)
    prior = sum_prior(torch.ones(code.prime), len(sent))
    channel = residues(heard.flatten(), noise_var, prior, code.prime).unflatten(0, heard.shape)
    return ldpc.decode(channel, code)[0], total % code.prime
