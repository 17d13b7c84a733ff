"""Numbers as whole numbers of steps and a remainder, and the step that suits the noise (`schemes/hybrid.py` derives it)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

MARGINS = (3.0, 3.5, 4.0, 4.5, 5.0)
"""z: by how many standard deviations the noise must miss half a unit."""
FINEST, STEPS = 1e-4, 60
"""The finest step, over the largest parameter, and how many are tried, one longer than the other by the same factor."""
MOST_OF_ENERGY = 0.9
"""The most that whole numbers may take, should devices have longer updates than the base station."""


def divided(values: Float[Tensor, "*n"], step: float) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
    """Return whole numbers of steps, and what is left.

    >>> divided(torch.tensor([2.25, -0.75]), 1.0)
    (tensor([ 2., -1.]), tensor([0.2500, 0.2500]))
    """
    whole = torch.zeros_like(values) if step == math.inf else (values / step).round()
    return whole, values if step == math.inf else values - step * whole


def choose_step(own: Float[Tensor, " params"], noise_var: float, slots: int) -> tuple[float, float]:
    """Return the step and the margin of the least error; (infinity, zero) if nothing beats plain analog transmission.

    Args:
        own: The base station's parameters, with the gains of their layers.
        noise_var: Noise variance per channel use.
        slots: Slots that carry them.
    """
    largest = float(own.abs().max()) if len(own) else 0.0
    least, best = noise_var * float(own.square().sum()) / slots, (math.inf, 0.0)
    if largest == 0 or noise_var == 0:
        return best
    for step in (2 * largest * torch.logspace(math.log10(FINEST), 0, STEPS)).tolist():
        whole, rest = (float(part.square().sum()) / slots for part in divided(own, step))
        for margin in MARGINS:
            spent = 4 * margin**2 * noise_var * whole
            error = math.erfc(margin / math.sqrt(2)) * step**2  # 2Q(z)
            if spent < MOST_OF_ENERGY and noise_var * rest / (1 - spent) + error < least:
                least, best = noise_var * rest / (1 - spent) + error, (step, margin)
    return best
