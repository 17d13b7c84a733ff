import pytest
import torch

from aircomp.encode.codebook import make_codebook
from aircomp.encode.learned import LearnedCodebook, with_common
from aircomp.encode.settings import CodebookSettings
from aircomp.errors import ConfigError


def learned(**settings):
    return LearnedCodebook(CodebookSettings(**settings), 12, 8, rng=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("start", ["gaussian", "bernoulli", "two-bases"])
@pytest.mark.parametrize("form", ["product", "single"])
def test_before_training_it_is_the_codebook_that_it_starts_from(start, form):
    expected = make_codebook(start, 12, 8, rng=torch.Generator().manual_seed(3))
    # float32 rounding of a norm and a division
    torch.testing.assert_close(learned(start=start, form=form)(), expected, rtol=0, atol=3e-7)


def test_rows_keep_unit_norm_wherever_training_goes():
    book = learned()
    with torch.no_grad():
        for parameter in book.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(book().norm(dim=1), torch.ones(12), rtol=0, atol=1e-6)


def test_gradients_reach_base_and_transform():
    book = learned(start="gaussian").double()
    names = ["base", "transform"]

    def rows(*values):
        return torch.func.functional_call(book, dict(zip(names, values, strict=True)), ())

    assert torch.autograd.gradcheck(rows, (book.base, book.transform))
    book()[0].sum().backward()  # one codeword alone
    assert (book.base.grad[1:] == 0).all()
    assert (book.transform.grad != 0).any(), "the transform moves all codewords by what one of them needs"


def test_orthogonality_is_the_squared_frobenius_distance():
    book = learned()
    assert book.orthogonality().item() == 0
    with torch.no_grad():
        book.transform.mul_(2.0)  # WᵀW = 4I, so 8 entries of 3² each
        book.transform[0, 1] = 0.5  # adds 2·(2·0.5)² off the diagonal and turns a 4 into 4.25: 3.25² instead of 3²
    assert book.orthogonality().item() == pytest.approx(7 * 9 + 3.25**2 + 2 * 1.0)
    assert learned(form="single").orthogonality().item() == 0


def test_a_frozen_codebook_has_nothing_to_learn():
    assert not any(p.requires_grad for p in learned(form="fixed").parameters())
    assert all(p.requires_grad for p in learned().parameters())


def test_a_single_matrix_has_no_transform():
    assert [name for name, _ in learned(form="single").named_parameters()] == ["base"]


def test_a_common_share_is_the_same_in_every_codeword_and_nothing_else_has_it():
    book = learned(common=0.1)()
    flat = torch.full((8,), 8**-0.5)
    torch.testing.assert_close(book @ flat, torch.full((12,), 0.1**0.5), rtol=0, atol=1e-6)
    torch.testing.assert_close(book.norm(dim=1), torch.ones(12), rtol=0, atol=1e-6)
    rows = torch.randn(12, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(lambda rows: with_common(rows, 0.1), (rows,))


def test_a_fixed_codebook_is_told_nothing_of_the_noise():
    with pytest.raises(ConfigError, match="noise_follows is on, but form = 'fixed' has no gradients"):
        CodebookSettings.parse({"form": "fixed", "noise_follows": True})
