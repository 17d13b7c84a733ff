"""The training set: saved rounds, split by round. Batches of their slots are `train/batches.py`.

directories ──► load_rounds ──► Split(train, validation, test)      whole rounds, never slots of one in two parts
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.memory import check_memory
from aircomp.decoders.side import STRENGTH
from aircomp.errors import ArtefactError, ConfigError
from aircomp.quantize.codebook import build, codeword_order, nearest
from aircomp.quantize.settings import QuantizeSettings
from aircomp.train.fragments import FragmentRound, load_round, round_files, round_name, saved_order
from aircomp.train.recipe import (
    BatchesSettings,
    Order,
    OrderSettings,
    PaperTrainingSettings,
    PretrainSettings,
    RoundsSettings,
)

log = logging.getLogger(__name__)


@runtime_checkable
class NamedRound(Protocol):
    """A round that says where it is from."""

    @property
    def name(self) -> str:
        """Directory and file."""
        ...

    @property
    def num_slots(self) -> int:
        """Slots of the round."""
        ...


R = TypeVar("R", bound=NamedRound)


@dataclass(frozen=True)
class TrainingRound:
    """What training needs of one round."""

    name: str
    """Directory and file, for the record of what was trained on."""
    indices: Int[Tensor, "devices slots"]
    """In 16 bits: a collection fits into memory."""
    popularity: Float[Tensor, " codewords"]
    quant_codebook: Float[Tensor, "codewords fragment"]
    mean_fragments: Float[Tensor, "slots fragment"] | None
    """Mean of the devices' unquantised fragments, where they were saved."""
    distortion: Float[Tensor, " slots"] | None = None
    """What quantisation leaves of the devices' fragments: its energy over that of a device's mean fragment, mean over the
    devices; where unquantised fragments were saved."""
    groups: dict[str, "Grouping"] = field(default_factory=dict)
    """Side information by the decoder's name for it, where it is trained with."""

    @property
    def num_slots(self) -> int:
        """Slots of the round."""
        return self.indices.shape[1]

    def of(self, devices: Int[Tensor, " devices"]) -> "TrainingRound":
        """Return the round as it would be if only some of its devices had sent."""
        indices = self.indices[devices]
        groups = {name: Grouping.by(g.of, indices, len(self.popularity)) for name, g in self.groups.items()}
        return replace(self, indices=indices, mean_fragments=None, distortion=None, groups=groups)


@dataclass(frozen=True)
class Grouping:
    """The slots of a round by one property, and what devices chose in each group."""

    of: Int[Tensor, " slots"]
    sums: Float[Tensor, "groups codewords"]
    """Choices of all devices in all slots of a group."""

    @classmethod
    def by(cls, groups: Int[Tensor, " slots"], indices: Int[Tensor, "devices slots"], n: int) -> "Grouping":
        """Count the choices in each group."""
        flat = (groups.long() * n + indices.long()).flatten()
        num_groups = int(groups.max()) + 1
        sums = torch.bincount(flat, minlength=num_groups * n).view(num_groups, n)
        return cls(groups.long(), sums.float())

    def log_ratio(
        self,
        slots: Int[Tensor, " slots"],
        counts: Float[Tensor, "slots codewords"],
        shares: Float[Tensor, " codewords"],
    ) -> Float[Tensor, "slots codewords"]:
        """Return how much likelier than in the round each codeword is, judged by the other slots of the group."""
        others = self.sums[self.of[slots]] - counts + STRENGTH * shares
        return (others / others.sum(1, keepdim=True) / shares).log()


@dataclass(frozen=True)
class Split(Generic[R]):
    """Rounds to train on, to choose the best epoch by, and to report on."""

    train: list[R]
    validation: list[R]
    test: list[R]

    @property
    def names(self) -> dict[str, list[str]]:
        """Which rounds are in which part."""
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        return {part: sorted(r.name for r in rounds) for part, rounds in parts.items()}


def trained_numbers(split: Split[TrainingRound], settings: RoundsSettings) -> list[int]:
    """Return the fewest and most devices that are trained on."""
    numbers = [len(r.indices) for r in split.train]
    if settings.devices_high is None:
        return [min(numbers), max(numbers)]
    return [min(settings.devices_low, max(numbers)), min(settings.devices_high, max(numbers))]


def load_rounds(directories: Sequence[Path], settings: OrderSettings, *, seed: int) -> Split[TrainingRound]:
    """Read fragments directories and split their rounds, all together.

    Raises:
        ArtefactError: If a directory or file is missing, damaged, or does not go with the others.
        ConfigError: If a directory is given twice, or there are fewer than three rounds.
    """
    files = training_files(directories)
    places = {folder: place for place, folder in enumerate(dict.fromkeys(path.parent for path in files))}
    rounds = [_load(path, settings, seed, index, places[path.parent]) for index, path in enumerate(files)]
    for path, loaded in zip(files, rounds, strict=True):
        if loaded.quant_codebook.shape != rounds[0].quant_codebook.shape:
            raise ArtefactError(
                f"{path} has a quantisation codebook of shape {tuple(loaded.quant_codebook.shape)}, {files[0]} of "
                f"{tuple(rounds[0].quant_codebook.shape)}; train on collections of one size"
            )
    return deal(rounds, settings, rng=rngs.generator(seed, "split of rounds"))


def load_fitting(
    directories: Sequence[Path], settings: PretrainSettings | PaperTrainingSettings
) -> Split[TrainingRound]:
    """Read rounds as `load_rounds` does, and refuse those that a recipe cannot be trained on.

    Raises:
        ConfigError: If they lack what the loss needs, or training would not fit into memory.
    """
    split = load_rounds(directories, settings.data, seed=settings.seed)
    if settings.loss.quantization and any(r.mean_fragments is None for r in [*split.train, *split.validation]):
        raise ConfigError("loss.quantization needs raw fragments, which some rounds lack; collect with --raw")
    check_memory(settings.memory_needs(len(split.train[0].popularity)))
    return split


def training_files(directories: Sequence[Path]) -> list[Path]:
    """Return the round files of all directories.

    Raises:
        ArtefactError: If a directory has none.
        ConfigError: If a directory is given twice, or there are fewer than three rounds.
    """
    resolved = [os.path.realpath(directory) for directory in directories]  # which takes a loop of links as it is
    if len(set(resolved)) < len(resolved):
        raise ConfigError("a fragments directory was given twice; rounds would be both trained on and held out")
    files = [path for directory in directories for path in round_files(directory)]
    if len(files) < 3:
        raise ConfigError(f"{len(files)} rounds cannot be split into training, validation and test; collect 3 or more")
    return files


def deal(rounds: Sequence[R], settings: BatchesSettings, *, rng: torch.Generator) -> Split[R]:
    """Deal whole rounds out at random, at least one to each part: slots of one round are never in two.

    Raises:
        ConfigError: If none is left to train on.
    """
    validation = max(1, round(settings.validation_fraction * len(rounds)))
    test = max(1, round(settings.test_fraction * len(rounds)))
    train = len(rounds) - validation - test
    if train < 1:
        raise ConfigError(f"of {len(rounds)} rounds none is left to train on; lower the fractions or collect more")
    if min(validation, test) < 2:
        log.warning(
            "%d rounds: %d to validate and %d to test on, so both say little; collect more",
            len(rounds),
            validation,
            test,
        )
    shuffled = [rounds[i] for i in torch.randperm(len(rounds), generator=rng).tolist()]
    return Split(shuffled[:train], shuffled[train : train + validation], shuffled[train + validation :])


def _load(path: Path, settings: OrderSettings, seed: int, index: int, place: int) -> TrainingRound:
    """Read round `index` of all, of the directory at `place`."""
    saved, drawn = load_round(path), saved_order(path.parent) == "none"
    name = round_name(path)
    changed = settings.curvature_aware or settings.num_codewords not in (None, saved.num_codewords)
    as_drawn = settings.order == "none"
    if changed or (as_drawn and not drawn and saved.fragments is not None):
        rng = rngs.generator(seed, "curvature-aware codebook", index)
        order = "none" if as_drawn else "popularity"
        try:
            saved = requantize(
                saved, settings.num_codewords, curvature_aware=settings.curvature_aware, order=order, rng=rng
            )
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        drawn = as_drawn
    if not (as_drawn and drawn):
        saved = arrange(saved, settings.order, rng=rngs.generator(seed, "codeword order", place))
    raw = None if saved.fragments is None else saved.fragments.mean(dim=0)
    left = None if saved.fragments is None else _distortion(saved.fragments, saved.quant_codebook[saved.indices])
    groups = _groups(saved, path) if isinstance(settings, RoundsSettings) and settings.side_information else {}
    return TrainingRound(name, saved.indices.to(torch.int16), saved.popularity, saved.quant_codebook, raw, left, groups)


def _distortion(
    fragments: Float[Tensor, "devices slots fragment"], quantized: Float[Tensor, "devices slots fragment"]
) -> Float[Tensor, " slots"]:
    """Return the energy that quantisation leaves in every slot, over a device's mean energy of a slot; mean over devices."""
    energy = fragments.square().sum(2).mean(1, keepdim=True).clamp(min=torch.finfo(fragments.dtype).tiny)
    return ((fragments - quantized).square().sum(2) / energy).mean(0)


def _groups(saved: FragmentRound, path: Path) -> dict[str, Grouping]:
    known = {"slot_layers": saved.slot_layers, "bs_indices": saved.bs_indices}
    found = {k: Grouping.by(v, saved.indices, saved.num_codewords) for k, v in known.items() if v is not None}
    if not found:
        raise ConfigError(
            f"data.side_information is on, but {path} has neither slot_layers nor bs_indices; turn it off"
        )
    return found


def arrange(saved: FragmentRound, order: Order, *, rng: torch.Generator) -> FragmentRound:
    """Renumber the codewords of a round; what they stand for stays.

    Args:
        saved: A round, in whatever order it was collected.
        order: Most popular first, similar directions side by side, or `none`: shuffled. The order in which k-means++ drew
            the codewords is not saved with a round that has another one. So the caller gives equal generators for all
            rounds of a collection, which makes one shuffle of them, not a new one in every round. If the rounds were
            saved most popular first, a codeword keeps its rank in every round then, and loses its neighbours alone.
        rng: For `none`.
    """
    n = saved.num_codewords
    if order == "none":
        rows = torch.randperm(n, generator=rng)
    else:
        rows = codeword_order(saved.quant_codebook, saved.popularity, order)
    rank = torch.argsort(rows)  # the inverse permutation: from old number to new
    return replace(
        saved,
        indices=rank[saved.indices],
        popularity=saved.popularity[rows],
        quant_codebook=saved.quant_codebook[rows],
        bs_indices=None if saved.bs_indices is None else rank[saved.bs_indices],
    )


def requantize(
    saved: FragmentRound,
    num_codewords: int | None = None,
    *,
    curvature_aware: bool = False,
    order: Order = "popularity",
    rng: torch.Generator,
) -> FragmentRound:
    """Build the round's quantisation codebook anew from the base station's raw fragments, and quantise with it.

    Args:
        saved: A round with raw fragments.
        num_codewords: Codewords of the new codebook; as many as before if not given.
        curvature_aware: Cluster in a space where directions of low variance weigh more.
        order: Of the new codewords; none: as they are drawn.
        rng: For the seeds of the clusters.

    Raises:
        ConfigError: If the round was saved without raw fragments.
    """
    if saved.fragments is None or saved.bs_fragments is None:
        raise ConfigError("the round holds no raw fragments to quantise anew; collect with --raw")
    settings = QuantizeSettings(
        fragment_length=saved.quant_codebook.shape[1],
        num_codewords=num_codewords or saved.num_codewords,
        curvature_aware=curvature_aware,
        order=order,
    )
    quantizer = build(saved.bs_fragments, settings, rng=rng)
    return replace(
        saved,
        indices=nearest(saved.fragments, quantizer.codebook),
        popularity=quantizer.popularity,
        quant_codebook=quantizer.codebook,
        bs_indices=quantizer.base_indices,
    )
