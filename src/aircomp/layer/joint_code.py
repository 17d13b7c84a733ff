"""A trained joint code: the network that makes a round's codewords, as one object."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from aircomp.common import rng as rngs
from aircomp.encode.joint_code import JointCode
from aircomp.encode.settings import JointCodeSettings
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.files import filled, read_layer, read_own_or_bundled, write_layer

NAME = "joint-net"
BUNDLED = ("weights", NAME)


class JointLayer:
    """A trained joint code.

    Examples:
        >>> JointLayer.load().code.settings.width
        24

    Args:
        code: The network.
        config: What made it.
        training: How the training went.
    """

    def __init__(
        self, code: JointCode, *, config: dict[str, Any] | None = None, training: dict[str, Any] | None = None
    ):
        self.code, self.config, self.training = code, config or {}, training or {}

    def save(self, directory: str | Path) -> None:
        """Write the layer directory; each of the two files is replaced as a whole."""
        config = self.config | {"joint": self.code.settings.model_dump(mode="json")}
        write_layer(directory, self.code.state_dict(), config, self.training)

    @classmethod
    def load(cls, directory: str | Path | None = None, *, device: str | torch.device = "cpu") -> "JointLayer":
        """Read a layer directory, by default the one that comes with the package.

        Raises:
            ArtefactError: If a file is missing, damaged or foreign.
        """
        return read_own_or_bundled(directory, BUNDLED, partial(_read, device=device))


def untrained(settings: JointCodeSettings, seed: int) -> JointCode:
    """Return a code that follows the rule."""
    return JointCode(settings, rngs.generator(seed, "joint code"))


def _read(directory: Path, device: str | torch.device) -> JointLayer:
    weights, description = read_layer(directory, "joint", "a joint code", NAME)
    try:
        settings = JointCodeSettings.parse(description["config"]["joint"])
    except ConfigError as error:
        raise ArtefactError(f"{directory / 'layer.json'}: config.joint: {error}") from None
    code = filled(untrained(settings, 0), directory, weights, device)
    return JointLayer(code, config=description["config"], training=description["training"])
