r"""A learned analog code, the devices' part: a small network shared by all makes channel uses of a fragment.

    fragment v [d] ──┬───────────────────────────────► the first d uses (form `systematic`)
    energy of layer ─┴─► network of two hidden layers ─► the other l − d uses; in the form `free` all l of them

In the systematic form sums of the first uses are sums of fragments, so that without noise nothing is lost. In the free form
the network is all there is: nomographic networks (Bouzinis et al. 2024), shared by all devices.

The receiver's part is `decode/analog_code.py`.
"""

from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn

from aircomp.common.settings import Settings

Form = Literal["systematic", "free"]
QUIET = -3.0
"""Logarithm of the amplitude that the systematic form begins with beside the fragment."""
SMALL = 0.1
"""Fragments of mean energy one have entries about so large; the network sees them over it, their tails compressed."""


class AnalogCodeSettings(Settings):
    """The networks of a learned analog code."""

    form: Form = "systematic"
    """systematic: the parameters are sent as they are, and a network fills the other uses. free: the network makes all uses
    of a slot, as in nomographic networks."""
    width: int = Field(default=64, ge=1, le=4096)
    """Units of each of the two hidden layers, on both sides."""


def network(inputs: int, width: int, outputs: int, rng: torch.Generator) -> nn.Sequential:
    """Return two hidden layers between inputs and outputs, drawn as torch draws them, but from this generator."""
    sizes = (inputs, width, width, outputs)
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        linear = nn.utils.skip_init(nn.Linear, before, after)
        with torch.no_grad():
            for parameter in linear.parameters():
                parameter.copy_((2 * torch.rand(parameter.shape, generator=rng) - 1) * before**-0.5)
        layers += [linear, nn.GELU()]
    return nn.Sequential(*layers[:-1])


class AnalogEncoder(nn.Module):
    """What every device makes of its fragments.

    Args:
        settings: Form and size.
        fragment_length: Parameters of a fragment.
        uses: Channel uses of a slot, at least as many.
        rng: What the weights are drawn from.
    """

    def __init__(self, settings: AnalogCodeSettings, fragment_length: int, uses: int, rng: torch.Generator):
        super().__init__()
        self.systematic = settings.form == "systematic"
        made = uses - fragment_length if self.systematic else uses
        self.network = network(fragment_length + 1, settings.width, made, rng)
        self.loudness = nn.Parameter(torch.tensor(QUIET))

    def forward(
        self, fragments: Float[Tensor, "devices slots fragment"], layer_energy: Float[Tensor, " slots"]
    ) -> Float[Tensor, "devices slots uses"]:
        """Return what devices would send, before their common amplitude.

        Args:
            fragments: Of mean energy one.
            layer_energy: Logarithm of the energy of each slot's layer over the mean.
        """
        told = (layer_energy / 4)[:, None].expand(*fragments.shape[:2], 1)
        made = self.network(torch.cat([torch.asinh(fragments / SMALL), told], dim=2))
        if not self.systematic:
            return made
        return torch.cat([fragments, self.loudness.exp() * made], dim=2)
