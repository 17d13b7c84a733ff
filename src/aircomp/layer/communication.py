"""The trained communication layer: a random-access codebook and the decoder that was trained with it, as one object.

    layer.safetensors   `codebook`, and the decoder's weights as `decoder.…`
    layer.json          version, configuration, training summary, hashes of codebook and decoder

Both hashes are checked on loading: a decoder is never paired with another codebook than its own.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Unpack, get_args

import torch
from jaxtyping import Float
from torch import Tensor

import aircomp
from aircomp.common.artefact import read_json, write_json
from aircomp.common.checks import check_choice, check_path, check_type
from aircomp.common.radio import SnrReference
from aircomp.common.tensors import check_device, check_tensor, expect_tensor, read_tensors, tensor_hash, write_tensors
from aircomp.decoders.base import Decoded, Known, check_codebook
from aircomp.decoders.net.base import Net, NetDecoder, NetState, make_net
from aircomp.decoders.settings import AmpDaNetSettings, GampNetSettings
from aircomp.errors import AirCompError, ArtefactError, ConfigError, ShapeError
from aircomp.layer import zoo

MAX_CODEWORDS, MAX_LENGTH = 32_767, 65_536
MOST_BYTES = 2**30
"""What a file may claim."""


REMEDY = "restore it or train anew"

FORMS: dict[str, type[AmpDaNetSettings] | type[GampNetSettings]] = {
    "paper": AmpDaNetSettings,
    "authors": AmpDaNetSettings,
    "gamp-net": GampNetSettings,
}
"""The settings of a network by its form."""


class CommunicationLayer:
    """A codebook and its decoder, trained together, used as they are.

    Examples:
        >>> layer = CommunicationLayer.load("runs/layer")  # doctest: +SKIP
        >>> layer.decode(received, popularity).counts  # doctest: +SKIP

    Args:
        codebook: The random-access codebook, one unit-norm codeword a row.
        net: The decoder's network: the paper's in one of its forms (`AmpDaNet`), or this package's own (`GampNet`).
        snr_reference: Whether the noise variance is one for the round, or follows the power of each `slot`; for networks that
            estimate it from the round.
        config: What made the layer.
        training: How the training went.
    """

    def __init__(
        self,
        codebook: Float[Tensor, "codewords uses"],
        net: Net,
        *,
        snr_reference: SnrReference = "round",
        config: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
    ):
        check_tensor("codebook", codebook, "codewords uses", "floating")
        check_type("net", net, Net, "an AmpDaNet or a GampNet")
        check_choice("snr_reference", snr_reference, get_args(SnrReference))
        self.codebook = check_codebook(codebook.detach().float())
        self.net = net
        self.snr_reference: SnrReference = snr_reference
        self.config, self.training = config or {}, training or {}
        self._decoder = self.decoder()

    def __repr__(self) -> str:
        """Say in a line what it is for."""
        codewords, uses = self.codebook.shape
        trained = self.num_active_range
        devices = "" if trained is None else f", trained on {trained[0]} to {trained[1]} devices"
        return f"<CommunicationLayer, form {self.form}: {codewords} codewords of {uses} channel uses{devices}>"

    @property
    def form(self) -> str:
        """Which network it has: `paper`, `authors` or `gamp-net`."""
        return self.net.settings.form

    @property
    def num_active_range(self) -> tuple[int, int] | None:
        """Fewest and most active devices in the rounds it was trained on, where layer.json tells them."""
        match self.training.get("num_active"):
            case [int() as low, int() as high] if 0 <= low <= high:
                return low, high
            case _:
                return None

    def decoder(self, *, snr_reference: SnrReference | None = None) -> NetDecoder:
        """Return the decoder alone, for the layer's own SNR reference or another one."""
        snr_reference = self.snr_reference if snr_reference is None else snr_reference
        check_choice("snr_reference", snr_reference, get_args(SnrReference))
        return self.net.decoder(self.codebook, snr_reference=snr_reference, trained_for=self.num_active_range)

    def decode(
        self, received: Float[Tensor, "slots uses"], popularity: Float[Tensor, " codewords"], **known: Unpack[Known]
    ) -> Decoded:
        """Estimate the counts of every slot; `aircomp.decoders.base.Observation` says what may be known besides."""
        return self._decoder.decode(received, popularity, **known)

    def trace(self, received: Float[Tensor, "slots uses"], popularity: Float[Tensor, " codewords"]) -> list[NetState]:
        """Return what the network thinks of every slot after each of its layers."""
        return self._decoder.trace(received, popularity)

    def save(self, directory: str | Path) -> None:
        """Write the layer directory; each of the two files is replaced as a whole."""
        check_path("directory", directory)
        weights = self.net.state_dict()
        description = {
            "version": aircomp.__version__,
            "config": self.config | {"net": self.net.settings.model_dump(mode="json")},
            "training": self.training,
            "codebook_hash": tensor_hash(self.codebook),
            "decoder_hash": _weights_hash(weights),
        }
        tensors = {"codebook": self.codebook} | {f"decoder.{name}": weight for name, weight in weights.items()}
        write_tensors(Path(directory) / "layer.safetensors", tensors)
        write_json(Path(directory) / "layer.json", description)

    @classmethod
    def load(
        cls, directory: str | Path | None = None, *, snr_reference: SnrReference = "round", device: str = "cpu"
    ) -> "CommunicationLayer":
        """Read a layer directory, or a layer that comes with the package by its name (`aircomp layers` lists them).

        Args:
            directory: The directory or the name: `paper` is the paper's, `128x64` (the default) ours of the same sizes. A
                directory that has such a name is meant by `"./128x64"`.
            snr_reference: Whether the noise variance is one for the round, or follows the power of each `slot`.
            device: Where to compute.

        Raises:
            ArtefactError: If a file is missing, damaged or foreign, or codebook and decoder do not belong together.
        """
        check_choice("snr_reference", snr_reference, get_args(SnrReference))
        check_device("device", device)
        if directory is None:
            directory = zoo.DEFAULT
        check_path("directory", directory)
        if not zoo.is_name(directory):
            return cls._read(Path(directory), snr_reference, device)
        with zoo.bundled(str(directory)) as bundled:
            return cls._read(bundled, snr_reference, device)

    @classmethod
    def from_authors(cls, state_dict: Mapping[str, Tensor]) -> "CommunicationLayer":
        """Make a layer of form `authors` from a checkpoint of the authors' code (`AMPNet1DEnhanced.state_dict()`).

        Args:
            state_dict: Nine vectors of raw scalars, three weights `denoisers.<layer>.<0, 2, 4>.weight` a layer, and the
                codebook `C_nt`, one codeword a row.

        Raises:
            ArtefactError: If names are missing or unknown, or a size does not go with the others; it says which.
        """
        from aircomp.layer.authors import from_authors

        codebook, net = from_authors(state_dict)
        return cls(codebook, net, snr_reference="slot")

    @classmethod
    def _read(cls, directory: Path, snr_reference: SnrReference, device: str) -> "CommunicationLayer":
        description = _described(directory / "layer.json")
        path = directory / "layer.safetensors"
        tensors, _ = read_tensors(path, MOST_BYTES)
        codebook = _checked_codebook(path, tensors)
        weights = {k.removeprefix("decoder."): v for k, v in tensors.items() if k.startswith("decoder.")}
        if tensor_hash(codebook) != description["codebook_hash"]:
            raise ArtefactError(
                f"the codebook in {path} is not the one that layer.json describes; a decoder works only with the "
                "codebook it was trained with, so restore both files or train anew"
            )
        if _weights_hash(weights) != description["decoder_hash"]:
            raise ArtefactError(
                f"the decoder in {path} is not the one that layer.json describes; restore both files or train anew"
            )
        net = _rebuild(path, directory / "layer.json", description["config"]["net"], weights).to(device)
        return cls(
            codebook.to(device),
            net,
            snr_reference=snr_reference,
            config=description["config"],
            training=description["training"],
        )

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write the layer directory with a model card and a config.json beside it, as huggingface_hub's mixin does.

        Args:
            save_directory: Where to.
            **options: The mixin's own, such as `push_to_hub=True` and `repo_id="me/layer"`.

        Returns:
            The commit's address if it was pushed.
        """
        n, l = self.codebook.shape  # noqa: E741
        description = {"library": "aircomp", "version": aircomp.__version__, "num_codewords": n, "codeword_length": l}
        return _hub_mixin()(self).save_pretrained(save_directory, **({"config": description} | options))

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> "CommunicationLayer":
        """Read a layer directory through huggingface_hub's mixin: a local one, or else one from the hub.

        Args:
            pretrained_model_name_or_path: A directory, or a repository on the hub.
            **options: The mixin's own, such as `revision`, and those of `load`.

        Raises:
            ArtefactError: As `load`, or if the repository cannot be had.
        """
        try:
            return _hub_mixin().from_pretrained(pretrained_model_name_or_path, **options)
        except AirCompError:
            raise
        except (OSError, ValueError) as error:  # what the hub raises: no such repository, no such name, no network
            raise ArtefactError(
                f"{str(pretrained_model_name_or_path)!r} is neither a layer directory nor a repository that the hub "
                f"gave ({str(error).splitlines()[0]}); check the name"
            ) from None


def _described(path: Path) -> dict[str, Any]:
    description = read_json(path)
    fields = {"config": dict, "training": dict, "codebook_hash": str, "decoder_hash": str}
    is_layer = isinstance(description, dict) and all(isinstance(description.get(k), t) for k, t in fields.items())
    if not is_layer or not isinstance(description["config"].get("net"), dict):
        raise ArtefactError(
            f"{path} does not describe a communication layer; give a directory made by aircomp pretrain"
        )
    return description


def _checked_codebook(path: Path, tensors: dict[str, Tensor]) -> Tensor:
    codebook = expect_tensor(path, tensors, "codebook", torch.float32, ("codewords", "uses"), REMEDY)
    n, l = codebook.shape  # noqa: E741
    if not (2 <= n <= MAX_CODEWORDS and 1 <= l <= MAX_LENGTH):
        raise ArtefactError(
            f"{path} claims {n} codewords of length {l}; expected 2 to {MAX_CODEWORDS} of 1 to {MAX_LENGTH}"
        )
    try:
        return check_codebook(codebook)
    except ShapeError as error:
        raise ArtefactError(f"{path}: {error}; restore it or train anew") from None


def _rebuild(path: Path, description: Path, settings: dict[str, Any], weights: dict[str, Tensor]) -> Net:
    """Build the network that the description asks for, and fill it with weights that fit it exactly."""
    form = settings.get("form")
    if form not in FORMS:
        raise ArtefactError(f"{description}: config.net.form = {form!r}; expected one of {', '.join(FORMS)}")
    try:
        parsed = FORMS[form].parse(settings)
    except ConfigError as error:
        raise ArtefactError(f"{description}: config.net: {error}") from None
    foreign = f"{path} does not hold the decoder that layer.json describes; restore both files or train anew"
    # before building it: a description may claim more than memory holds, the file's weights have been read
    claimed = parsed.num_layers * parsed.filters**2 * parsed.kernel
    if claimed > sum(weight.numel() for weight in weights.values()):
        raise ArtefactError(foreign)
    net = make_net(parsed)
    shapes = {name: weight.shape for name, weight in weights.items()}
    if shapes != {name: weight.shape for name, weight in net.state_dict().items()}:
        raise ArtefactError(foreign)
    for name, like in net.state_dict().items():
        expect_tensor(path, weights, name, like.dtype, like.shape, REMEDY)
    net.load_state_dict(weights)
    return net.eval().requires_grad_(False)


def _weights_hash(weights: dict[str, Tensor]) -> str:
    return tensor_hash(*(weights[name] for name in sorted(weights)))


@cache
def _hub_mixin() -> Any:  # Any: a class that exists only where huggingface_hub is installed
    """Return the mixin around a layer; made when first used, because few need huggingface_hub."""
    try:
        from huggingface_hub import ModelHubMixin, snapshot_download
    except ImportError:
        raise ConfigError("huggingface_hub is not installed; get it with pip install 'aircomp[hub]'") from None

    class LayerOnHub(ModelHubMixin, library_name="aircomp", tags=["over-the-air-computation"]):
        def __init__(self, layer: CommunicationLayer):
            self.layer = layer

        def _save_pretrained(self, save_directory: Path) -> None:
            self.layer.save(save_directory)

        @classmethod
        def _from_pretrained(
            cls, *, model_id: str, snr_reference: SnrReference = "round", device: str = "cpu", **download: Any
        ) -> Any:
            directory = Path(model_id).absolute()  # a bare name could be that of a layer of the package
            if not directory.is_dir():
                directory = snapshot_download(model_id, allow_patterns=["layer.*"], **download)
            return CommunicationLayer.load(directory, snr_reference=snr_reference, device=device)

    return LayerOnHub


def fitting_layer(layer: Path | str, num_codewords: int, device: str | torch.device = "cpu") -> CommunicationLayer:
    """Load a layer for so many codewords.

    Raises:
        ConfigError: If it has others.
    """
    found = CommunicationLayer.load(layer, device=str(device))
    if len(found.codebook) != num_codewords:
        fitting = [name for name in zoo.layer_names() if zoo.layer_sizes(name)[0] == num_codewords]
        raise ConfigError(
            f"the layer {layer} has {len(found.codebook)} codewords, but {num_codewords} are asked for; "
            f"take a layer that fits ({', '.join(fitting) or 'none comes with the package'}), or set "
            f"uplink.quantize.num_codewords = {len(found.codebook)} (for saved rounds: in aircomp collect)"
        )
    return found
