r"""A learned analog code, the devices' part: a small network shared by all makes channel uses of a fragment.

    fragment v [d] ──┬───────────────────────────────► the first d uses (form `systematic`)
    energy of layer ─┴─► network of two hidden layers ─► the other l − d uses; in the form `free` all l of them

In the systematic form sums of the first uses are sums of fragments, so that without noise nothing is lost. In the free form
the network is all there is: nomographic networks (Bouzinis et al. 2024), shared by all devices. As published every device has
a network of its own, which also sees its channel: `devices` says how many there are.

The receiver's part is `decoders/analog_code.py`.
"""

from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.encode.settings import AnalogCodeSettings

QUIET = -3.0
"""Logarithm of the amplitude that the systematic form begins with beside the fragment."""
LEAST_SNR = 1e-6
"""Of a device that a network is told of: one in a deeper fade sends as if it were this."""
SMALL = 0.1
"""Fragments of mean energy one have entries about so large; the network sees them over it, their tails compressed."""


class LinearOfEach(nn.Module):
    """A linear layer for each of some devices.

    Args:
        devices: How many.
        before: Inputs.
        after: Outputs.
    """

    def __init__(self, devices: int, before: int, after: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(devices, before, after))
        self.bias = nn.Parameter(torch.empty(devices, 1, after))

    def forward(self, values: Float[Tensor, "some slots before"]) -> Float[Tensor, "some slots after"]:
        """Apply the layers of the first devices, of as many as there are."""
        return torch.baddbmm(self.bias[: len(values)], values, self.weight[: len(values)])


def network(inputs: int, width: int, outputs: int, rng: torch.Generator, devices: int | None = None) -> nn.Sequential:
    """Return two hidden layers between inputs and outputs, drawn as torch draws them, but from this generator.

    Args:
        inputs: How many.
        width: Units of a hidden layer.
        outputs: How many.
        rng: What weights are drawn from.
        devices: How many networks side by side; None: one, whatever it is given.
    """
    sizes = (inputs, width, width, outputs)
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        make = partial(LinearOfEach, devices) if devices is not None else partial(nn.utils.skip_init, nn.Linear)
        linear = make(before, after)
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
        self.systematic, self.sees_channel = settings.form == "systematic", settings.devices is not None
        made = uses - fragment_length if self.systematic else uses
        self.network = network(fragment_length + 1 + self.sees_channel, settings.width, made, rng, settings.devices)
        self.loudness = nn.Parameter(torch.tensor(QUIET))

    def forward(
        self,
        fragments: Float[Tensor, "devices slots fragment"],
        layer_energy: Float[Tensor, " slots"],
        snr: Float[Tensor, "devices told"] | None = None,
    ) -> Float[Tensor, "devices slots uses"]:
        """Return what devices would send, before their common amplitude.

        Args:
            fragments: Of mean energy one.
            layer_energy: Logarithm of the energy of each slot's layer over the mean.
            snr: Of each device that sends alone, in every slot or one for all: what networks see of their channel.
        """
        told = [layer_energy.expand(fragments.shape[:2])]
        if self.sees_channel and snr is not None:
            told.append(snr.to(fragments).clamp(min=LEAST_SNR).log().expand(fragments.shape[:2]))
        made = self.network(torch.cat([torch.asinh(fragments / SMALL), torch.stack(told, dim=2) / 4], dim=2))
        if not self.systematic:
            return made
        return torch.cat([fragments, self.loudness.exp() * made], dim=2)
