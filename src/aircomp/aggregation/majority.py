"""Rules that count votes: for a codeword (the paper's, Appendix C) or for the sign of each coordinate."""

import torch
from jaxtyping import Float, Real
from torch import Tensor

from aircomp.common.checks import check_number


def majority_vote(
    counts: Real[Tensor, "slots codewords"], codewords: Float[Tensor, "codewords fragment"]
) -> Float[Tensor, "slots fragment"]:
    """Take the codeword that most devices chose; tied winners are averaged (Appendix C, majority voting).

    Where no two devices agree, everybody is a tied winner and the result is the mean.
    """
    most = counts.amax(dim=1, keepdim=True)
    winners = ((counts == most) & (counts > 0)).to(codewords.dtype)
    return winners @ codewords / winners.sum(dim=1, keepdim=True).clamp(min=1)  # an empty slot has no winner


def sign_vote(
    counts: Real[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    *,
    scale: float | None = None,
) -> Float[Tensor, "slots fragment"]:
    """Let the devices vote on the sign of every coordinate; a tie gives zero.

    Args:
        counts: How many devices chose each codeword.
        codewords: What each codeword stands for.
        scale: Length of the step in every coordinate; 1 gives the plain signs of signSGD, which want a learning rate of
            their own. By default it is the mean absolute value of all entries that were sent in the slot, so that the
            result has the size of an update and the usual learning rate fits.
    """
    if scale is not None:
        check_number("scale", scale, low=0, open_low=True, high=torch.finfo(codewords.dtype).max)
    counts = counts.to(codewords.dtype)
    signs = (counts @ codewords.sign()).sign()
    if scale is not None:
        return scale * signs
    size = counts @ codewords.abs().mean(dim=1, keepdim=True)
    return signs * size / counts.sum(dim=1, keepdim=True).clamp(min=1)
