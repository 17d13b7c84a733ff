"""The basis in which codewords that are alike are decoded."""

import pytest
import torch

from aircomp.decoders.amp.basis import leading_basis
from aircomp.decoders.amp.gamp import Gamp
from aircomp.encode.codebook import count, make_codebook, random_rotation
from helpers.draws import seeded

NUM, USES = 128, 64


def leaning(lean):
    """Return codewords that share ten directions."""
    rng = seeded(0)
    towards = torch.nn.functional.normalize(torch.randn(NUM, 10, generator=rng), dim=1)
    rows = make_codebook("two-bases", NUM, USES, rng=rng) + lean * towards @ random_rotation(USES, rng)[:10].float()
    return torch.nn.functional.normalize(rows, dim=1)


@pytest.mark.parametrize("leading", [0, 11, 64, 100])
def test_it_is_orthonormal_and_ends_with_what_codewords_share(leading):
    codebook, popularity = leaning(2.0), torch.arange(1.0, NUM + 1)
    turn = leading_basis(codebook, popularity, leading)
    torch.testing.assert_close(turn @ turn.T, torch.eye(USES), atol=1e-5, rtol=0)
    if leading == 11:
        energy = (popularity[:, None] * (codebook @ turn).square()).sum(0)
        assert float(energy[-10:].sum() / energy.sum()) > 0.8
    assert torch.equal(turn, leading_basis(codebook, popularity, leading))


def test_gamp_that_explodes_on_such_codewords_holds_in_the_basis():
    codebook, rng = leaning(1.0), seeded(1)
    shares = torch.arange(1.0, NUM + 1) ** -1.0
    truth = count(torch.multinomial(shares.expand(10, -1), 400, replacement=True, generator=rng), NUM)
    noise_var = 10 / USES
    received = truth.float() @ codebook + noise_var**0.5 * torch.randn(400, USES, generator=rng)
    turn = leading_basis(codebook, shares, 11)
    plain = Gamp(codebook).decode(received, shares, num_active=10.0, noise_var=noise_var)
    turned = Gamp(codebook @ turn).decode(received @ turn, shares, num_active=10.0, noise_var=noise_var)

    def error(decoded):
        return float((decoded.mean - truth).square().sum() / truth.square().sum())

    assert error(turned) < 0.6
    assert error(plain) > 100
