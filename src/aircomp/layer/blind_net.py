"""A trained blind receiver: a complex codebook and the schedule that was trained with it, as one object.

The codebook is stored as real uses, two of which are a complex one, like every other.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common import rng as rngs
from aircomp.common.tensors import expect_tensor
from aircomp.decoders.fading.blind_net import BlindNet
from aircomp.encode.codebook import make_codebook
from aircomp.errors import ArtefactError
from aircomp.layer.files import REMEDY, filled, read_layer, read_own_or_bundled, write_layer

BUNDLED = ("weights", "blind-net")


class BlindNetworks(nn.Module):
    """All that is learned.

    Args:
        codebook: What training begins with, or ended with: one codeword a row.
    """

    def __init__(self, codebook: Float[Tensor, "codewords uses"]):
        super().__init__()
        self.rows = nn.Parameter(codebook)
        self.net = BlindNet()

    @classmethod
    def untrained(cls, num_codewords: int, codeword_length: int, *, seed: int) -> "BlindNetworks":
        """Begin with codewords of low coherence, and with the plain schedule."""
        rng = rngs.generator(seed, "random-access codebook")
        return cls(make_codebook("low-coherence", num_codewords, codeword_length, rng=rng))

    @property
    def codebook(self) -> Float[Tensor, "codewords uses"]:
        """Unit-norm codewords."""
        return nn.functional.normalize(self.rows, dim=1)


class BlindLayer:
    """A trained blind receiver.

    Examples:
        >>> BlindLayer.load().codebook.shape
        torch.Size([128, 64])

    Args:
        networks: What was learned.
        config: What made it.
        training: How the training went.
    """

    def __init__(
        self, networks: BlindNetworks, *, config: dict[str, Any] | None = None, training: dict[str, Any] | None = None
    ):
        self.networks, self.config, self.training = networks, config or {}, training or {}
        self.codebook, self.net = networks.codebook.detach(), networks.net

    def save(self, directory: str | Path) -> None:
        """Write the layer directory; each of the two files is replaced as a whole."""
        write_layer(directory, self.networks.state_dict(), {"fading": {}} | self.config, self.training)

    @classmethod
    def load(cls, directory: str | Path | None = None, *, device: str | torch.device = "cpu") -> "BlindLayer":
        """Read a layer directory, by default the one that comes with the package.

        Raises:
            ArtefactError: If a file is missing, damaged or foreign.
        """
        return read_own_or_bundled(directory, BUNDLED, partial(_read, device=device))


def _read(directory: Path, device: str | torch.device) -> BlindLayer:
    path = directory / "layer.safetensors"
    weights, description = read_layer(directory, "fading", "a trained blind receiver", "blind-net")
    rows = expect_tensor(path, weights, "rows", torch.float32, ("codewords", "uses"), REMEDY)
    networks = BlindNetworks(rows)
    if len(weights) > len(networks.state_dict()) or rows.shape[1] % 2 or not (rows.norm(dim=1) > 0).all():
        raise ArtefactError(
            f"{path} holds no codewords of an even number of uses and the numbers of a schedule; {REMEDY}"
        )
    networks = filled(networks, directory, weights, device)
    return BlindLayer(networks, config=description["config"], training=description["training"])
