"""The fragments directory: one safetensors file a round, from `collect` into `pretrain` and `evaluate`.

    indices [devices, slots]   the codeword each active device chose in each slot
    popularity [codewords]     from the base station
    quant_codebook [codewords, fragment]
    optional: bs_indices [slots], slot_layers [slots], fragments [devices, slots, fragment], bs_fragments [slots, fragment]

A directory that holds only the first three works.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.artefact import read_json, read_tensors, write_json, write_tensors
from aircomp.errors import ArtefactError

MAX_DEVICES, MAX_CODEWORDS = 100_000, 32_767
"""What a file may claim."""


@dataclass(frozen=True)
class FragmentRound:
    """One saved round."""

    indices: Int[Tensor, "devices slots"]
    popularity: Float[Tensor, " codewords"]
    quant_codebook: Float[Tensor, "codewords fragment"]
    bs_indices: Int[Tensor, " slots"] | None = None
    slot_layers: Int[Tensor, " slots"] | None = None
    fragments: Float[Tensor, "devices slots fragment"] | None = None
    bs_fragments: Float[Tensor, "slots fragment"] | None = None

    @property
    def num_active(self) -> int:
        """Devices that transmitted."""
        return self.indices.shape[0]

    @property
    def num_slots(self) -> int:
        """Slots of the round."""
        return self.indices.shape[1]

    @property
    def num_codewords(self) -> int:
        """Codewords of the quantisation codebook."""
        return self.quant_codebook.shape[0]


def round_path(directory: Path, index: int) -> Path:
    """Return where round `index` (from 0) lies."""
    return directory / f"round_{index:05d}.safetensors"


def save_round(directory: Path, index: int, fragments: FragmentRound) -> None:
    """Write one round atomically; indices are stored as uint8 where they fit."""
    small = torch.uint8 if fragments.num_codewords <= 256 else torch.int16
    tensors = {"popularity": fragments.popularity.float(), "quant_codebook": fragments.quant_codebook.float()}
    tensors |= {"indices": fragments.indices.to(small)}
    if fragments.bs_indices is not None:
        tensors["bs_indices"] = fragments.bs_indices.to(small)
    if fragments.slot_layers is not None:
        tensors["slot_layers"] = fragments.slot_layers.to(torch.int16)
    if fragments.fragments is not None and fragments.bs_fragments is not None:
        tensors |= {"fragments": fragments.fragments.float(), "bs_fragments": fragments.bs_fragments.float()}
    write_tensors(round_path(directory, index), tensors)


def write_description(directory: Path, config: dict[str, Any], order: str) -> None:
    """Write fragments.json: the configuration that made the rounds and the codeword order."""
    write_json(directory / "fragments.json", {"config": config, "order": order})


def codeword_order(directory: Path) -> str:
    """Return the order of the codewords in a directory: popularity unless its description says otherwise."""
    path = directory / "fragments.json"
    return str(read_json(path).get("order", "popularity")) if path.exists() else "popularity"


def round_files(directory: Path) -> list[Path]:
    """Return the round files of a directory in order.

    Raises:
        ArtefactError: If there is none.
    """
    files = sorted(directory.glob("round_*.safetensors"))
    if not files:
        raise ArtefactError(f"{directory} holds no rounds (round_00000.safetensors, …); make some with aircomp collect")
    return files


def load_round(path: Path) -> FragmentRound:
    """Read one round and check all that it claims.

    Raises:
        ArtefactError: If the file is damaged, incomplete or inconsistent, naming what is wrong.
    """
    tensors, _ = read_tensors(path)
    missing = {"indices", "popularity", "quant_codebook"} - tensors.keys()
    if missing:
        raise ArtefactError(f"{path} lacks {', '.join(sorted(missing))}; it is not a fragments file, collect it anew")
    indices, popularity, quant = (tensors[k] for k in ("indices", "popularity", "quant_codebook"))
    if indices.ndim != 2 or indices.is_floating_point() or len(indices) > MAX_DEVICES or 0 in indices.shape:
        raise ArtefactError(f"{path}: indices has shape {tuple(indices.shape)}; expected integers [devices, slots]")
    if quant.ndim != 2 or not 2 <= len(quant) <= MAX_CODEWORDS or popularity.shape != quant.shape[:1]:
        raise ArtefactError(
            f"{path}: quant_codebook {tuple(quant.shape)} and popularity {tuple(popularity.shape)} do not fit; "
            "expected [codewords, fragment] and [codewords]"
        )
    own, layers = tensors.get("bs_indices"), tensors.get("slot_layers")
    for name, chosen in (("indices", indices), ("bs_indices", own)):
        if chosen is not None and not (int(chosen.min()) >= 0 and int(chosen.max()) < len(quant)):
            raise ArtefactError(f"{path}: {name} reaches {int(chosen.max())}; expected 0 to {len(quant) - 1}")
    for name in ("bs_indices", "slot_layers"):
        if name in tensors and tensors[name].shape != indices.shape[1:]:
            raise ArtefactError(f"{path}: {name} has shape {tuple(tensors[name].shape)}; expected [{indices.shape[1]}]")
    return FragmentRound(
        indices.long(),
        popularity.float(),
        quant.float(),
        None if own is None else own.long(),
        None if layers is None else layers.long(),
        tensors.get("fragments"),
        tensors.get("bs_fragments"),
    )
