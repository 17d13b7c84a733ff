r"""Nomographic networks (Bouzinis et al. 2024): one for each device, one at the receiver, trained together for a function.

    numbers of device k, log SNR of device k ──► network k ──► uses of energy one ─┐
                                                                                  + ──► receiver's network ──► f(x₁, …, x_K)
    numbers of device K, …                                                        ─┘  (sees the sum and nothing else)

Every function is nomographic, $f(x_1, \dots, x_K) = \psi(\sum_k \varphi_k(x_k))$, if a number may have more than one use.
A device's output has a fixed norm, so a magnitude is sent as a direction. In the shared form all devices have one
network, and numbers are whole fragments.

layer.safetensors   `device.…` and `receiver.…`
layer.json          version, configuration, training summary, hash of the weights
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor, nn

from aircomp.common import rng as rngs
from aircomp.common.settings import Settings
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.files import REMEDY, filled, read_layer, read_own_or_bundled, write_layer

BUNDLED = ("weights", "nomographic")
LEAST_SNR, MOST_SNR = 1e-3, 1e3
"""Bounds of the SNR that a network sees; beyond them it is told of these. The upper one is that of training: 20 dB, and a
strong gain."""
MOST_WEIGHTS = 1 << 24
"""What a file may claim."""

FUNCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda x, active: (x * active).sum(dim=0) / active.sum(dim=0),
    "product": lambda x, active: torch.where(active > 0, x, 1.0).prod(dim=0),
    "norm": lambda x, active: (x.square() * active).sum(dim=0).sqrt(),
    "maximum": lambda x, active: torch.where(active > 0, x, -1.0).amax(dim=0),
}
"""Of the numbers of devices and of who sends: [devices, numbers, inputs] and [devices, numbers, 1]."""


class NomographicSettings(Settings):
    """Form and size of nomographic networks."""

    function: Literal["mean", "product", "norm", "maximum"] = "mean"
    """What the receiver is to find of the devices' numbers, each between -1 and 1."""
    devices: int = Field(default=2, ge=1, le=1024)
    """How many send at most; each has a network of its own."""
    fewest: int = Field(default=2, ge=1, le=1024)
    """How many send at least: training draws their number."""
    shared: bool = False
    """Whether all devices have one network, as fragments are sent."""
    inputs: int = Field(default=1, ge=1, le=1024)
    """Numbers that a device sends together."""
    uses: int = Field(default=4, ge=1, le=4096)
    """Real channel uses for them."""
    width: int = Field(default=256, ge=1, le=4096)
    """Neurons of each of the two hidden layers of a device's network."""
    receiver_width: int = Field(default=256, ge=1, le=4096)
    """Neurons of each of the two hidden layers of the receiver's network."""

    @model_validator(mode="after")
    def _check_devices(self) -> "NomographicSettings":
        if self.fewest > self.devices:
            raise ValueError(f"fewest = {self.fewest} is above devices = {self.devices}; lower it")
        return self


class NomographicNetworks(nn.Module):
    """The networks of all devices, and the receiver's.

    Args:
        settings: Form and size.
        seed: What untrained weights are drawn from.
    """

    def __init__(self, settings: NomographicSettings, *, seed: int = 0):
        super().__init__()
        self.settings, rng = settings, rngs.generator(seed, "nomographic networks")
        number, width, wide = 1 if settings.shared else settings.devices, settings.width, settings.receiver_width

        def layer(inputs: int, outputs: int, *batch: int) -> nn.ParameterList:
            drawn = torch.randn(*batch, inputs, outputs, generator=rng) * math.sqrt(2 / inputs)
            return nn.ParameterList([drawn, torch.zeros(*batch, 1, outputs)])

        sizes = (settings.inputs + 1, width, width, settings.uses)
        self.device = nn.ModuleList(layer(a, b, number) for a, b in pairwise(sizes))
        sizes = (settings.uses, wide, wide, settings.inputs)
        self.receiver = nn.ModuleList(layer(a, b) for a, b in pairwise(sizes))

    def send(
        self, numbers: Float[Tensor, "devices numbers inputs"], snr: Float[Tensor, "devices told"]
    ) -> Float[Tensor, "devices numbers uses"]:
        """Return the uses of every device, of energy one for each number; the first device has the first network."""
        channel = (snr.clamp(LEAST_SNR, MOST_SNR).log10() / 2)[:, :, None].expand(*numbers.shape[:2], 1)
        found = torch.cat([numbers, channel.to(numbers)], dim=2)
        for i, layer in enumerate(self.device):
            weight, bias = layer.parameters()
            some = slice(None) if self.settings.shared else slice(len(numbers))
            found = found @ weight[some] + bias[some]
            found = torch.relu(found) if i < 2 else found
        return found / found.norm(dim=2, keepdim=True).clamp(min=1e-12)

    def hear(self, received: Float[Tensor, "numbers uses"]) -> Float[Tensor, "numbers inputs"]:
        """Return the function, from the sum of the devices' uses and noise."""
        found = received
        for i, layer in enumerate(self.receiver):
            weight, bias = layer.parameters()
            found = found @ weight + bias
            found = torch.relu(found) if i < 2 else found
        return found


class NomographicCode:
    """Trained nomographic networks.

    Examples:
        >>> NomographicCode.load().networks.settings.function
        'mean'

    Args:
        networks: Those of both sides.
        training: How the training went.
    """

    def __init__(self, networks: NomographicNetworks, *, training: dict[str, Any] | None = None):
        self.networks, self.training = networks, training or {}

    def save(self, directory: str | Path) -> None:
        """Write the layer directory; each of the two files is replaced as a whole."""
        config = {"nomographic": self.networks.settings.model_dump(mode="json")}
        write_layer(directory, self.networks.state_dict(), config, self.training)

    @classmethod
    def load(cls, directory: str | Path | None = None, *, device: str | torch.device = "cpu") -> "NomographicCode":
        """Read a layer directory, by default the one that comes with the package.

        Raises:
            ArtefactError: If a file is missing, damaged or foreign.
        """
        return read_own_or_bundled(directory, BUNDLED, partial(_read, device=device))


def _read(directory: Path, device: str | torch.device) -> NomographicCode:
    weights, description = read_layer(directory, "nomographic", "nomographic networks", "nomographic")
    try:
        settings = NomographicSettings.parse(description["config"]["nomographic"])
    except ConfigError as error:
        raise ArtefactError(f"{directory / 'layer.json'}: config.nomographic: {error}") from None
    number = 1 if settings.shared else settings.devices
    size = number * settings.width * (settings.width + settings.uses + settings.inputs)
    size += settings.receiver_width * (settings.receiver_width + settings.uses + settings.inputs)
    if size > min(sum(weight.numel() for weight in weights.values()), MOST_WEIGHTS):
        raise ArtefactError(
            f"{directory / 'layer.json'} describes larger networks than layer.safetensors holds; {REMEDY}"
        )
    networks = filled(NomographicNetworks(settings), directory, weights, device)
    return NomographicCode(networks, training=description["training"])
