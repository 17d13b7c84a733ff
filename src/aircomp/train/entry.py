"""What every training is called with: checked arguments, the processes of torchrun, and a directory of its own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from aircomp.common.checks import check_callable, check_number, check_path, check_type
from aircomp.common.outdir import as_directory
from aircomp.common.settings import Presets
from aircomp.common.tensors import check_device
from aircomp.errors import ConfigError
from aircomp.federation.journal import open_run
from aircomp.train.distributed import team
from aircomp.train.loop import Record, Trained, Training
from aircomp.train.recipe import TrainingSettings

S = TypeVar("S", bound=TrainingSettings)
L = TypeVar("L", bound=Trained)


class RunOptions(TypedDict, total=False):
    """How to run a training; `aircomp.train.fit.pretrain` says what each means."""

    on_epoch: Callable[[Record], None] | None
    resume: bool
    overwrite: bool
    other_arithmetic: bool
    device: str
    batches_per_step: int | None


def train_on(
    directories: Sequence[str | Path],
    settings: S,
    out: str | Path,
    presets: Presets[S],
    make: Callable[..., Training[Any, L, Any, Any]],
    *,
    on_epoch: Callable[[Record], None] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    other_arithmetic: bool = False,
    device: str = "cpu",
    batches_per_step: int | None = None,
) -> L:
    """Check the arguments, make a training and run it in its directory, which the first process holds for itself.

    Args:
        directories: As for `aircomp.train.fit.pretrain`, and so are the others that are not named here.
        settings: The recipe.
        out: The layer directory.
        presets: Where recipes of this kind come from, and how the one of a run that is resumed is read.
        make: Of the fragments directories and the keywords of `Training`, returns the training.
        on_epoch: Called with each epoch's record.
        resume: Continue an interrupted training.
        overwrite: Replace what is in `out`.
        other_arithmetic: Continue it also where something else computes, as for `aircomp.simulate`.
        device: Where to compute.
        batches_per_step: Batches whose mean gradient a step follows.
    """
    _check(directories, settings, out, presets.model, on_epoch, device, batches_per_step)
    directory = as_directory(out)
    with team() as processes:
        training = make(
            [Path(d) for d in directories],
            out=directory,
            device=device,
            on_epoch=on_epoch,
            batches_per_step=batches_per_step,
            team=processes,
        )
        if not processes.leads:
            return training.run(resume=resume)
        with open_run(
            directory,
            settings,
            command="pretrain",
            resume=resume,
            overwrite=overwrite,
            other_arithmetic=other_arithmetic,
            read=presets.read,
        ):
            return training.run(resume=resume)


def _check(
    directories: Sequence[str | Path],
    settings: TrainingSettings,
    out: str | Path,
    kind: type[TrainingSettings],
    on_epoch: Callable[[Record], None] | None,
    device: str,
    batches_per_step: int | None,
) -> None:
    check_type("directories", directories, (list, tuple), "a list of fragments directories")
    if not directories:
        raise ConfigError("directories is empty; expected at least one fragments directory")
    for path in directories:
        check_path("directories", path)
    check_path("out", out)
    check_type("settings", settings, kind, f"{kind.__name__}, such as load_preset('{kind.EXAMPLE}')")
    check_device("device", device)
    if batches_per_step is not None:
        check_number("batches_per_step", batches_per_step, low=1, high=65_536, integer=True)
    if on_epoch is not None:
        check_callable("on_epoch", on_epoch, "of a record")
