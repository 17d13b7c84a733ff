"""Arithmetic that is counted while it runs: products, element-wise work and sums, against counting by hand."""

import pytest
import torch

from aircomp.schemes.work import count_operations

A, B = torch.ones(3, 4), torch.ones(4, 5)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda: A @ B, 2 * 3 * 4 * 5),
        (lambda: A.to(torch.complex64) @ B.to(torch.complex64), 8 * 3 * 4 * 5),
        (lambda: (A + 1).exp_(), 2 * 12),
        (lambda: A.sum(), 12),
        (lambda: A.clone().T[0].contiguous(), 0),
        (lambda: torch.complex(A, A) * 2, 2 * 12),
        (lambda: torch.softmax(A, 1), 12),
    ],
)
def test_operations_are_those_counted_by_hand(run, expected):
    assert count_operations(run) == expected
