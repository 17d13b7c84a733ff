import torch

from aircomp.aggregation.rules import aggregate

CODEWORDS = torch.tensor([[1.0, -2.0], [5.0, 4.0], [-9.0, 9.0]])


def test_the_most_counted_codeword_wins():
    assert torch.equal(aggregate("majority-vote", torch.tensor([[1, 3, 2]]), CODEWORDS), CODEWORDS[1:2])


def test_tied_winners_are_averaged_and_the_others_are_not():
    result = aggregate("majority-vote", torch.tensor([[2, 2, 1]]), CODEWORDS)
    assert torch.equal(result, torch.tensor([[3.0, 1.0]]))


def test_signs_are_decided_by_the_number_of_devices_and_not_by_size():
    # first coordinate: three plus, two minus although those are larger; second: two minus (first codeword)
    result = aggregate("sign-vote", torch.tensor([[2, 1, 2]]), CODEWORDS, scale=1.0)
    assert torch.equal(result, torch.tensor([[1.0, 1.0]]))


def test_a_tied_sign_is_zero():
    result = aggregate("sign-vote", torch.tensor([[1, 0, 1]]), CODEWORDS, scale=1.0)
    assert torch.equal(result, torch.zeros(1, 2))


def test_signs_are_scaled_to_the_mean_absolute_entry_sent():
    # entries sent: 1, 2, 1, 2, 5, 4; their mean absolute value is 2.5
    result = aggregate("sign-vote", torch.tensor([[2, 1, 0]]), CODEWORDS)
    torch.testing.assert_close(result, torch.tensor([[2.5, -2.5]]), rtol=1e-6, atol=0)  # float32


def test_a_given_scale_is_the_step():
    result = aggregate("sign-vote", torch.tensor([[2, 1, 0]]), CODEWORDS, scale=0.01)
    torch.testing.assert_close(result, torch.tensor([[0.01, -0.01]]), rtol=1e-6, atol=0)
