r"""A learned analog code, the base station's part: from what was received to the sum of the devices' fragments.

    received [slots, uses], noise, number of devices ─┐
    own fragment, energy of the layer ────────────────┴─► network of two hidden layers ─► what to expect: mean M, variance P

In the systematic form the first uses hear the sum $s$ of the fragments behind noise of variance $\sigma^2$. The estimate is

$$\hat s = M + \frac{P}{P + \sigma^2} (y - M),$$

the posterior mean for a Gaussian prior. The network predicts that prior for each slot. Without noise $\hat s = y$ whatever
the network says, so nothing is lost. In the free form the network's output is the estimate.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

LEAST_NOISE, MOST_NOISE = 1e-5, 1e4
"""Bounds of the noise that the network sees, over the number of devices: beyond them it is told of these."""
NO_NOISE = 1e-30
"""What is added to a variance that something is divided by."""
FAR = 6.0
"""The largest logarithm by which the network changes the expected variance: it can neither drop nor invent a slot."""
CONTEXT = 6
"""Numbers that the network sees of a slot beside its uses and the own fragment."""


@dataclass(frozen=True)
class Heard:
    """What the base station knows of some slots, in the unit of the devices' fragments."""

    received: Float[Tensor, "slots uses"]
    noise_var: Float[Tensor, " slots"]
    """Per channel use."""
    num_active: Float[Tensor, " slots"]
    own: Float[Tensor, "slots fragment"]
    """The base station's own fragments."""
    layer_energy: Float[Tensor, " slots"]
    """Logarithm of the energy of each slot's layer over the mean."""


class SumEstimator(nn.Module):
    """What the base station makes of the received slots.

    Args:
        systematic: Whether the first uses of a slot are the sum of the fragments.
        fragment_length: Parameters of a fragment.
        network: From `inputs_of` numbers to `outputs_of`.
    """

    def __init__(self, systematic: bool, fragment_length: int, network: nn.Sequential):
        super().__init__()
        self.systematic, self.fragment_length, self.network = systematic, fragment_length, network
        last = network[-1]
        if systematic and isinstance(last, nn.Linear):  # begin with the prior that the energies of layers tell
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, heard: Heard) -> Float[Tensor, "slots fragment"]:
        """Return the estimated sum of the devices' fragments in every slot."""
        d, devices = self.fragment_length, heard.num_active[:, None]
        found = self.network(self._seen(heard))
        if not self.systematic:
            return devices * found
        spread, share = found.split(d, dim=1)
        expected = share * devices * heard.own
        variance = devices / d * (heard.layer_energy[:, None] + FAR * torch.tanh(spread)).exp()
        trust = variance / (variance + heard.noise_var[:, None] + NO_NOISE)
        return expected + trust * (heard.received[:, :d] - expected)

    def _seen(self, heard: Heard) -> Float[Tensor, "slots inputs"]:
        """Return what the network sees: numbers of about one, whatever the noise and the number of devices."""
        y, own, devices = heard.received, heard.own, heard.num_active
        noise = (heard.noise_var / devices).clamp(LEAST_NOISE, MOST_NOISE) * devices
        first = y[:, : self.fragment_length]
        aligned = (own * first).sum(1) / (own.norm(dim=1) * first.norm(dim=1) + NO_NOISE)
        context = [
            (first.square().mean(1) / noise + 1e-3).log(),
            (noise / devices).log(),
            devices.log(),
            heard.layer_energy,
            (own.square().sum(1) + 1e-4).log(),
            aligned,
        ]
        beside, loud = noise.sqrt()[:, None], devices[:, None]
        return torch.cat(
            [torch.asinh(y / beside), torch.asinh(loud * own / beside), torch.stack(context, 1) / 3], dim=1
        )


def inputs_of(fragment_length: int, uses: int) -> int:
    """Return how many numbers the network sees of a slot."""
    return uses + fragment_length + CONTEXT


def outputs_of(systematic: bool, fragment_length: int) -> int:
    """Return how many numbers the network tells of a slot."""
    return 2 * fragment_length if systematic else fragment_length
