"""A trained analog code: the devices' network and the base station's, as one object.

layer.safetensors   `encoder.…` and `estimator.…`
layer.json          version, configuration, training summary, hash of the weights
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aircomp.common import rng as rngs
from aircomp.decoders.analog_code import SumEstimator, inputs_of, outputs_of
from aircomp.encode.analog_code import AnalogEncoder, network
from aircomp.encode.settings import AnalogCodeSettings
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.files import REMEDY, filled, read_layer, read_own_or_bundled, write_layer

BUNDLED = ("weights", "learned-analog")
MOST_USES = 65_536
"""What a file may claim."""


class AnalogNetworks(nn.Module):
    """The networks of both sides, with all that is learned.

    Args:
        settings: Their form and size.
        fragment_length: Parameters of a fragment.
        uses: Channel uses of a slot.
        seed: What untrained weights are drawn from.
    """

    def __init__(self, settings: AnalogCodeSettings, fragment_length: int, uses: int, *, seed: int = 0):
        super().__init__()
        if settings.form == "systematic" and uses <= fragment_length:
            raise ConfigError(
                f"codeword_length = {uses}: the systematic form needs more uses than the {fragment_length} parameters of a "
                "fragment; lengthen it"
            )
        self.settings, self.fragment_length, self.uses = settings, fragment_length, uses
        rng = rngs.generator(seed, "analog code")
        systematic = settings.form == "systematic"
        self.encoder = AnalogEncoder(settings, fragment_length, uses, rng)
        sizes = inputs_of(fragment_length, uses), settings.width, outputs_of(systematic, fragment_length)
        self.estimator = SumEstimator(systematic, fragment_length, network(*sizes, rng))


class AnalogCode:
    """A trained analog code.

    Examples:
        >>> AnalogCode.load().networks.uses
        64

    Args:
        networks: Those of both sides.
        config: What made the code.
        training: How the training went.
    """

    def __init__(
        self, networks: AnalogNetworks, *, config: dict[str, Any] | None = None, training: dict[str, Any] | None = None
    ):
        self.networks, self.config, self.training = networks, config or {}, training or {}

    def save(self, directory: str | Path) -> None:
        """Write the layer directory; each of the two files is replaced as a whole."""
        networks = self.networks
        sizes = {"code": networks.settings.model_dump(mode="json"), "fragment_length": networks.fragment_length}
        config = self.config | sizes | {"codeword_length": networks.uses}
        write_layer(directory, networks.state_dict(), config, self.training)

    @classmethod
    def load(cls, directory: str | Path | None = None, *, device: str | torch.device = "cpu") -> "AnalogCode":
        """Read a layer directory, by default the one that comes with the package.

        Raises:
            ArtefactError: If a file is missing, damaged or foreign.
        """
        return read_own_or_bundled(directory, BUNDLED, partial(_read, device=device))


def _read(directory: Path, device: str | torch.device) -> AnalogCode:
    weights, description = read_layer(directory, "code", "an analog code", "learned-analog")
    networks = _built(directory / "layer.json", description["config"], weights)
    networks = filled(networks, directory, weights, device)
    return AnalogCode(networks, config=description["config"], training=description["training"])


def _built(path: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> AnalogNetworks:
    """Build the networks that the description asks for, after seeing that the file has as many weights as they would."""
    try:
        settings = AnalogCodeSettings.parse(config["code"])
    except ConfigError as error:
        raise ArtefactError(f"{path}: config.code: {error}") from None
    sizes = config.get("fragment_length"), config.get("codeword_length")
    match sizes:
        case (int() as d, int() as uses) if 1 <= d < uses <= MOST_USES:
            pass
        case _:
            raise ArtefactError(
                f"{path} claims {sizes[0]} parameters in {sizes[1]} uses; expected fewer parameters than uses, and at most "
                f"{MOST_USES} of these; {REMEDY}"
            )
    if settings.width * ((settings.devices or 1) * settings.width + uses) > sum(
        weight.numel() for weight in weights.values()
    ):
        raise ArtefactError(f"{path} describes larger networks than layer.safetensors holds; {REMEDY}")
    return AnalogNetworks(settings, d, uses)
