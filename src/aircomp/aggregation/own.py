"""Rules that hold the messages of a slot against the base station's own fragment, where there is no majority to side with.

Honest updates of federated devices correlate little: in a slot each sends another codeword, and a median of them is nearly
zero. The base station has trained, too. Its own fragments tell how long and how frequent honest messages are.
Neither rule sees an attacker whose messages look like honest ones, such as the negative of an update.
"""

import torch
from jaxtyping import Float, Real
from torch import Tensor

PARTS = 0.1
"""The share of attackers that the search for rare codewords begins with."""
MOST = 0.5
"""The largest share of attackers; where more frequencies are unexpected, the base station is the odd one out."""
UNSEEN = 0.5
"""How often a codeword that the base station never chose counts as chosen."""
STEPS = 50
"""Steps of the search; on digits the weights then change by less than a thousandth."""


def length_limit(
    counts: Real[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    *,
    own: Float[Tensor, "slots fragment"],
) -> Float[Tensor, "slots fragment"]:
    r"""Average messages that are cut to the length of the base station's own fragment.

    $$\hat u_i = \frac1K \sum_j x_{ij}\, q_j \min\{1, \|u_i\| / \|q_j\|\}$$

    So an attacker moves the mean by $\|u_i\|/K$ at most, whatever it sends. Where no message is longer than the own fragment,
    it is the mean; where that is zero, so is the result.

    Args:
        counts: How many devices chose each codeword.
        codewords: What each codeword stands for.
        own: The base station's own fragments.
    """
    lengths = codewords.norm(dim=1).clamp(min=torch.finfo(codewords.dtype).tiny)
    cut = counts.to(codewords) * (own.to(codewords).norm(dim=1, keepdim=True) / lengths).clamp(max=1)
    return cut @ codewords / counts.sum(dim=1, keepdim=True).clamp(min=1).to(codewords)


def rarity(
    counts: Real[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    *,
    own: Float[Tensor, "slots fragment"],
) -> Float[Tensor, "slots fragment"]:
    r"""Trust a codeword as far as the base station's own fragments make it as frequent as it is.

    Honest devices choose codeword $j$ with the probability $\pi_j$, as often as the base station's own fragments are nearest
    to it. Attackers, a share $\epsilon$, choose it with an unknown probability $a_j$. Expectation and maximisation find both
    from the frequencies $f_j$ of the round,

    $$r_j = \frac{(1-\epsilon)\pi_j}{(1-\epsilon)\pi_j + \epsilon a_j}, \qquad
      \epsilon = \sum_j f_j (1 - r_j), \qquad a_j = f_j (1 - r_j) / \epsilon,$$

    and $r_j$ (with $\epsilon$ at most a half), the probability that a message with codeword $j$ is honest, is its weight in
    the mean of the slot. It needs many slots of one codebook. Of whole vectors, one slot with a codeword a device, nothing is
    rare.

    Args:
        counts: How many devices chose each codeword.
        codewords: What each codeword stands for.
        own: The base station's own fragments.
    """
    weights = counts.to(codewords)
    total = counts.sum(dim=0).double()
    if not total.any():
        return weights @ codewords
    chosen = torch.bincount(torch.cdist(own.to(codewords), codewords).argmin(dim=1), minlength=len(codewords))
    honest, seen = chosen.double() + UNSEEN, total / total.sum()
    honest, attack, share = honest / honest.sum(), torch.full_like(seen, 1 / len(seen)), PARTS
    trust = torch.ones_like(seen)
    for _ in range(STEPS):
        trust = (1 - share) * honest / ((1 - share) * honest + share * attack)
        false = seen * (1 - trust)
        attack = false / false.sum().clamp(min=torch.finfo(false.dtype).tiny)
        share = min(float(false.sum()), MOST)
    weights = weights * trust.to(codewords)
    mass = weights.sum(dim=1, keepdim=True)
    return weights @ codewords / mass.where(mass > 0, 1)  # an empty slot has a zero numerator already
