"""Fits of the covariance: against scipy and the conditions of a maximum, and as accurate as measured before."""

import pytest
import torch
from scipy import optimize

from aircomp.decoders.fading.covariance import Covariance, maximum_likelihood, nnls
from aircomp.decoders.fading.receiver import Reception
from aircomp.decoders.settings import CovarianceSettings
from helpers.draws import accuracy, seeded
from helpers.radio import DEVICES, POPULARITY, hear, normal, qpsk


def faded(antennas, snr_db, slots, seed=0):
    rng = seeded(seed)
    codebook = qpsk(rng)
    return codebook, *hear(normal(antennas, DEVICES, slots, rng=rng), codebook, snr_db, rng=rng)


def test_least_squares_are_those_of_scipy():
    codebook, received, _, noise_var, _ = faded(8, 5.0, 3)
    found = nnls(received.transpose(0, 1), codebook, noise_var, 200)
    for slot in range(3):
        Y = received[:, slot].T.to(torch.complex128)
        left = (Y @ Y.mH / 8 - noise_var * torch.eye(32)).flatten()
        words = torch.stack([torch.outer(c, c.conj()).flatten() for c in codebook.to(torch.complex128)], 1)
        A, b = (torch.cat([x.real, x.imag]).numpy() for x in (words, left))
        torch.testing.assert_close(found[slot].double(), torch.from_numpy(optimize.nnls(A, b)[0]), atol=2e-2, rtol=0)


def test_maximum_likelihood_meets_the_conditions_of_a_maximum():
    codebook, received, _, noise_var, _ = faded(16, 5.0, 2)
    found = maximum_likelihood(received.transpose(0, 1), codebook, noise_var, 100).double()
    C = codebook.to(torch.complex128)
    for slot in range(2):
        Y = received[:, slot].T.to(torch.complex128)
        inverse = torch.linalg.inv(C.T @ (found[slot][:, None] * C.conj()) + noise_var * torch.eye(32))
        gradient = torch.stack([(c.conj() @ (inverse @ Y @ Y.mH / 16 @ inverse - inverse) @ c).real for c in C])
        scale = float(torch.stack([(c.conj() @ inverse @ c).real for c in C]).max())
        assert float(gradient.max()) < 0.02 * scale  # nothing can grow
        assert float(gradient[found[slot] > 0.05].abs().max()) < 0.02 * scale  # nothing that is there can move


@pytest.mark.parametrize(
    ("fit", "antennas", "snr_db", "expected"),
    [
        *(("nnls", 8, 0, 0.51), ("nnls", 8, 5, 0.70), ("nnls", 8, 10, 0.73)),
        *(("ml", 8, 0, 0.63), ("ml", 8, 5, 0.80), ("ml", 8, 10, 0.80)),
        *(("nnls", 64, 0, 0.98), ("nnls", 64, 5, 0.99), ("nnls", 64, 10, 1.0)),
    ],
)
def test_they_count_as_well_as_measured_before(fit, antennas, snr_db, expected):
    codebook, received, counts, noise_var, _ = faded(antennas, snr_db, 120)
    seen = Reception(received, POPULARITY, num_active=10.0, noise_var=noise_var)
    found = Covariance(codebook, CovarianceSettings(fit=fit)).receive(seen)[0]
    assert accuracy(found.counts, counts) > expected - 0.03  # 120 slots: a standard error of .015
