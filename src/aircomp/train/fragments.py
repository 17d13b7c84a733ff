"""The fragments directory: one safetensors file a round, from `collect` into `pretrain` and `evaluate`.

    indices [devices, slots]   the codeword each active device chose in each slot
    popularity [codewords]     from the base station
    quant_codebook [codewords, fragment]
    optional: bs_indices [slots], slot_layers [slots], fragments [devices, slots, fragment], bs_fragments [slots, fragment]

A directory that holds only the first three works.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.artefact import read_json, write_json
from aircomp.common.tensors import Content, expect_tensor, read_tensors, write_tensors
from aircomp.decoders.base import Known
from aircomp.decoders.settings import SideInformation
from aircomp.decoders.side import visible_side_information
from aircomp.errors import ArtefactError
from aircomp.train.recipe import MAX_CODEWORDS

MAX_DEVICES, MAX_LAYERS = 100_000, 32_768
MOST_BYTES = 4 * 2**30
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

    def of_slots(self, slots: Int[Tensor, " chosen"]) -> "FragmentRound":
        """Return some slots of the round."""
        own, layers, raw, base = self.bs_indices, self.slot_layers, self.fragments, self.bs_fragments
        return replace(
            self,
            indices=self.indices[:, slots],
            bs_indices=None if own is None else own[slots],
            slot_layers=None if layers is None else layers[slots],
            fragments=None if raw is None else raw[:, slots],
            bs_fragments=None if base is None else base[slots],
        )

    def known(self, kind: SideInformation = "both") -> Known:
        """Return what a decoder is told beside the popularity."""
        layers, own = visible_side_information(kind, self.slot_layers, self.bs_indices)
        return {"slot_layers": layers, "bs_indices": own, "quant_codebook": self.quant_codebook}


def round_path(directory: Path, index: int) -> Path:
    """Return where round `index` (from 0) lies."""
    return directory / f"round_{index:05d}.safetensors"


def round_name(path: Path) -> str:
    """Return directory and file of a round, for the record of what was trained on."""
    return f"{path.resolve().parent.name}/{path.stem}"


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


def saved_order(directory: Path) -> str:
    """Return the order of the codewords in a directory's rounds; popularity where nothing is said."""
    path = directory / "fragments.json"
    said = read_json(path) if os.path.lexists(path) else {}
    order = said.get("order", "popularity") if isinstance(said, dict) else None
    if order not in ("popularity", "none", "cosine"):
        raise ArtefactError(f"{path} tells no order of the codewords; expected popularity, none or cosine")
    return order


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
    tensors, _ = read_tensors(path, MOST_BYTES)

    def expect(name: str, content: Content, *shape: int | str) -> Tensor:
        return expect_tensor(path, tensors, name, content, shape, "collect it anew")

    indices = expect("indices", "integers", "devices", "slots")
    quant = expect("quant_codebook", "reals", "codewords", "fragment")
    (devices, slots), (codewords, fragment) = indices.shape, quant.shape
    if devices > MAX_DEVICES or not 2 <= codewords <= MAX_CODEWORDS:
        raise ArtefactError(
            f"{path} claims {devices} devices and {codewords} codewords; expected at most {MAX_DEVICES} and from 2 to "
            f"{MAX_CODEWORDS}; collect it anew"
        )
    popularity = expect("popularity", "reals", codewords)
    if (popularity < 0).any() or not popularity.any():
        raise ArtefactError(f"{path}: popularity has no or negative shares; collect it anew")
    known: dict[str, tuple[Content, tuple[int, ...]]] = {
        "bs_indices": ("integers", (slots,)),
        "slot_layers": ("integers", (slots,)),
        "fragments": ("reals", (devices, slots, fragment)),
        "bs_fragments": ("reals", (slots, fragment)),
    }
    optional = {name: expect(name, content, *shape) for name, (content, shape) in known.items() if name in tensors}
    limits = {"indices": codewords, "bs_indices": codewords, "slot_layers": MAX_LAYERS}
    for name, chosen in {"indices": indices, **optional}.items():
        if name in limits and not (0 <= int(chosen.min()) <= int(chosen.max()) < limits[name]):
            reach = f"reaches from {int(chosen.min())} to {int(chosen.max())}"
            raise ArtefactError(f"{path}: {name} {reach}; expected 0 to {limits[name] - 1}; collect it anew")
    return FragmentRound(
        indices.long(),
        popularity.float(),
        quant.float(),
        **{name: value.float() if value.is_floating_point() else value.long() for name, value in optional.items()},
    )
