r"""What the base station knows of a slot before it hears it: its own codeword there, and the layer the slot belongs to.

Devices train the same model, so they choose alike where the model is alike. A first decoding of the round, with one
distribution for all slots, tells how the choices in each layer differ from those of the round, and likewise those beside
each codeword of the base station; the second decoding expects both:

$$\pi_s(j) \propto \frac{\pi(j \mid \text{layer of } s)\;\pi(j \mid \text{own codeword in } s)}{\pi(j)}$$

The information is free: nobody sends it.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.decoders.base import check_groups
from aircomp.decoders.settings import SideInformation

# Choices that a group is given beforehand, distributed like those of the round: a group of few slots stays near the round.
# From 30 to 300 the accuracy of CIFAR-10 rounds changes by a thousandth (`tools/fit_constants.py strength`).
STRENGTH = 100.0


Groups = Int[Tensor, " slots"] | None


# Of a first decoding, which only tells how groups of slots differ: ten tell no more (.627 at 0 dB, .930 at 5 dB with either).
FIRST_ITERATIONS = 5


def visible_side_information(kind: SideInformation, slot_layers: Groups, bs_indices: Groups) -> tuple[Groups, Groups]:
    """Return layers and own codewords, each None where a decoder is not to see it."""
    return slot_layers if kind in ("both", "layer") else None, bs_indices if kind in ("both", "own") else None


def slot_rates(
    mean: Float[Tensor, "slots codewords"],
    rate: Float[Tensor, " codewords"],
    *groupings: Int[Tensor, " slots"] | None,
) -> Float[Tensor, "slots codewords"]:
    """Return the expected counts of every slot.

    Args:
        mean: Soft counts of a first decoding.
        rate: What that decoding expected of every slot.
        *groupings: The group of every slot by one property, several properties or none; None is skipped.
    """
    shares = rate.double() / rate.double().sum()
    log_ratio = torch.zeros_like(mean)
    for groups in groupings:
        if groups is not None:
            check_groups(groups, len(mean))
            groups = groups.unique(return_inverse=True)[1]  # numbered without gaps, however large the numbers given
            log_ratio += (group_shares(mean, shares, groups) / shares).log().to(mean)[groups]
    return rate.sum() * torch.softmax(shares.log().to(mean) + log_ratio, dim=1)


def group_shares(
    mean: Float[Tensor, "slots codewords"], shares: Float[Tensor, " codewords"], groups: Int[Tensor, " slots"]
) -> Float[Tensor, "groups codewords"]:
    """Return how each group chooses, in double precision so that it does not depend on how the slots were chunked."""
    sums = shares.new_zeros(int(groups.max()) + 1, len(shares))
    sums.index_add_(0, groups.long(), mean.double())
    sums += STRENGTH * shares
    return sums / sums.sum(1, keepdim=True)
