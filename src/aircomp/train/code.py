r"""Training an analog code end to end on saved rounds: `aircomp pretrain FRAGMENTS… --preset learned-analog`.

    fragments of some devices ──► AnalogEncoder ──► sum, noise ──► SumEstimator ──► error of the mean ──► Adam

The loss is the logarithm of the error's energy over that of the mean, so that every SNR weighs the same. The channel is
that of the scheme: energy one for each slot and device, and noise by the SNR reference `transmit`. Each batch draws an SNR
and a number of devices. Where a round has fewer, other rounds of its directory lend theirs. Over fading devices have Rayleigh
gains, whose phases they undo (`power.control = "phase"`). Pilots then tell the sum of the gains in place of their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.channel.awgn import add_noise
from aircomp.channel.fading import Fading
from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.common.tensors import moved
from aircomp.decoders.analog_code import Heard
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.analog_code import AnalogCode, AnalogNetworks
from aircomp.quantize.levels import layer_energies, layer_gains
from aircomp.train.entry import RunOptions, train_on
from aircomp.train.fragments import load_round, round_name
from aircomp.train.loop import Loss, Training
from aircomp.train.recipe import CODE_PRESETS as PRESETS
from aircomp.train.recipe import CodeRoundsSettings, CodeSettings
from aircomp.train.rounds import Split, deal, training_files

SNR_DB = (-10.0, -5.0, 0.0, 5.0, 10.0, 15.0, 20.0)
"""At which held-out rounds are measured."""
PHASED = Fading(control="phase")
"""Rayleigh gains, whose phases devices undo."""


@dataclass(frozen=True)
class CodeRound:
    """What training needs of one round."""

    name: str
    fragments: Float[Tensor, "devices slots fragment"]
    """Times the gain of their layer, and of mean energy one, as the scheme's devices have them."""
    own: Float[Tensor, "slots fragment"]
    """The base station's, in the same unit."""
    gains: Float[Tensor, " slots"]
    """What a fragment of the update was multiplied with."""

    @property
    def num_slots(self) -> int:
        """Slots of the round."""
        return self.fragments.shape[1]


@dataclass(frozen=True)
class CodeBatch:
    """Slots of one round, some devices, and the noise they will meet."""

    fragments: Float[Tensor, "devices slots fragment"]
    own: Float[Tensor, "slots fragment"]
    gains: Float[Tensor, " slots"]
    layer_energy: Float[Tensor, " slots"]
    snr_db: float
    fades: Float[Tensor, " devices"]
    """The amplitude with which each device arrives, one without fading."""


def pretrain_code(
    directories: Sequence[str | Path], settings: CodeSettings, out: str | Path, **options: Unpack[RunOptions]
) -> AnalogCode:
    """Train an analog code on fragments directories with raw fragments, and write it to `out`.

    The arguments are those of `aircomp.train.fit.pretrain`, and so are the files in `out`.

    Raises:
        TrainingDiverged: If the loss stops being finite; the best code so far is kept.
    """

    def make(paths: list[Path], **parts: Any) -> _CodeTraining:
        return _CodeTraining(settings, load_code_rounds(paths, settings), **parts)

    return train_on(directories, settings, out, PRESETS, make, **options)


class _CodeTraining(Training[AnalogNetworks, AnalogCode, CodeBatch, CodeRound]):
    """The training of an analog code; its loss is the logarithm of the normalised error of the mean."""

    def untrained(self) -> AnalogNetworks:
        settings, length = self.settings, self.rounds.train[0].own.shape[1]
        return AnalogNetworks(settings.code, length, settings.codeword_length, seed=settings.seed)

    def told(self, saved: CodeRound) -> Tensor:
        return saved.own

    def draw(self, rounds: Sequence[CodeRound], number: int, slots: Tensor, rng: torch.Generator) -> CodeBatch:
        return draw_batch(rounds, number, slots, self.settings.data, rng=rng)

    def validation_batches(self, *, rng: torch.Generator) -> list[CodeBatch]:
        """Draw batches once, and spread SNRs evenly over the range."""
        found = super().validation_batches(rng=rng)
        shares = ((place + 0.5) / len(found) for place in range(len(found)))
        return [
            replace(batch, snr_db=self.settings.data.snr_db(share)) for batch, share in zip(found, shares, strict=True)
        ]

    def loss(self, batch: CodeBatch, rng: torch.Generator) -> Loss:
        return Loss(error_of_batch(self.model, batch, rng=rng).log())

    def wrap(self, model: AnalogNetworks, config: dict[str, Any], training: dict[str, Any]) -> AnalogCode:
        return AnalogCode(model, config=config, training=training)

    def test(self, layer: AnalogCode) -> list[Row]:
        return [self._measured(layer, snr_db) for snr_db in SNR_DB]

    def _measured(self, layer: AnalogCode, snr_db: float) -> Row:
        row: Row = {"snr_db": snr_db, "snr_reference": "transmit", "rounds": len(self.rounds.test)}
        for name in ("update_nmse", "update_nmse_faded")[: 2 if self.settings.data.fading else 1]:
            errors = []
            for number, saved in enumerate(self.rounds.test):
                fragments, slots = saved.fragments[: self.settings.code.devices], torch.arange(saved.num_slots)
                batch = make_batch(saved, fragments, slots, snr_db)
                if name == "update_nmse_faded":
                    batch = replace(batch, fades=fades(len(fragments), rngs.fixed_generator("test fading", number)))
                noise = rngs.fixed_generator("test noise", number)
                errors.append(float(error_of_batch(layer.networks, moved(batch, self.device), rng=noise)))
            row[name] = sum(errors) / len(errors)
        return row


def load_code_rounds(directories: Sequence[Path], settings: CodeSettings) -> Split[CodeRound]:
    """Read fragments directories; return rounds to train on, to choose the best epoch by, and to report on.

    Raises:
        ArtefactError: If a directory or file is missing or damaged, or a round has no raw fragments.
    """
    rounds = [_load(path) for path in training_files(directories)]
    lengths = {saved.own.shape[1] for saved in rounds}
    if len(lengths) > 1:
        raise ArtefactError(
            f"the rounds have fragments of {sorted(lengths)} parameters; train on collections of one size"
        )
    return deal(rounds, settings.data, rng=rngs.generator(settings.seed, "split of rounds"))


def _load(path: Path) -> CodeRound:
    saved = load_round(path)
    if saved.fragments is None or saved.bs_fragments is None:
        raise ConfigError(f"{path} holds no raw fragments, which analog codes are trained on; collect with --raw")
    own = saved.bs_fragments
    layers = torch.zeros(len(own), dtype=torch.int64) if saved.slot_layers is None else saved.slot_layers
    gains = layer_gains(own.square().sum(dim=1).sqrt(), layers)[layers].to(own)
    energy = (saved.fragments * gains[:, None]).square().sum(dim=2).double().mean()
    if not energy > 0:
        raise ArtefactError(f"{path}: all fragments are zero; collect it anew")
    gains = gains * energy.rsqrt().to(gains)
    return CodeRound(round_name(path), saved.fragments * gains[:, None], own * gains[:, None], gains)


def draw_batch(
    rounds: Sequence[CodeRound],
    number: int,
    slots: Int[Tensor, " slots"],
    settings: CodeRoundsSettings,
    *,
    rng: torch.Generator,
) -> CodeBatch:
    """Make a batch of some slots of a round, with an SNR and a number of devices drawn from their ranges."""
    snr, many = torch.rand(2, generator=rng, dtype=torch.float64).tolist()
    wanted = round(settings.devices_low * (settings.devices_high / settings.devices_low) ** many)
    found, size = [], 0
    for saved in (*rounds[number:], *rounds[:number]):
        if saved.fragments.shape[1:] == rounds[number].fragments.shape[1:] and _place(saved) == _place(rounds[number]):
            devices = torch.randperm(len(saved.fragments), generator=rng)[: wanted - size]
            found.append(saved.fragments[devices[:, None], slots])
            size += len(devices)
        if size == wanted:
            break
    batch = make_batch(rounds[number], torch.cat(found), slots, settings.snr_db(snr))
    faded = settings.fading > 0 and float(torch.rand((), generator=rng)) < settings.fading
    return replace(batch, fades=fades(size, rng)) if faded else batch


def fades(devices: int, rng: torch.Generator) -> Float[Tensor, " devices"]:
    """Draw the amplitude with which every device arrives that undoes its phase."""
    arriving = PHASED.sound(devices, 1, rng=rng).with_power
    assert arriving is not None  # of a fading channel
    return arriving.values[:, 0, 0].abs()


def _place(saved: CodeRound) -> str:
    """Return the directory of a round: its rounds are of one model."""
    return saved.name.rpartition("/")[0]


def make_batch(
    saved: CodeRound,
    fragments: Float[Tensor, "devices slots fragment"],
    slots: Int[Tensor, " slots"],
    snr_db: float,
) -> CodeBatch:
    """Make a batch of the fragments of some slots of a round."""
    energy = layer_energies(saved.gains)[slots]
    fades = torch.ones(len(fragments))
    return CodeBatch(fragments, saved.own[slots], saved.gains[slots], energy, snr_db, fades)


def error_of_batch(code: AnalogNetworks, batch: CodeBatch, *, rng: torch.Generator) -> Float[Tensor, ""]:
    """Send a batch and estimate the mean; return the energy of its error over that of the mean, both as updates."""
    fragments = batch.fragments
    num_active, energy = len(fragments), fragments.square().sum(dim=2).mean()
    snr = batch.fades.square() * (10 ** (batch.snr_db / 10) / num_active)
    sent = code.encoder(fragments, batch.layer_energy, snr[:, None])
    # the energy of the code over that of fragments, which have one in the whole round, but not in every batch
    tiny = torch.finfo(energy.dtype).tiny
    amplitude = (energy.clamp(min=tiny) / sent.square().sum(dim=2).mean().clamp(min=tiny)).sqrt()
    noise_var = num_active / code.uses * 10 ** (-batch.snr_db / 10) / amplitude.square()
    each, told = torch.ones_like(batch.gains), batch.fades.sum()  # by the pilots, which fade as all else does
    received = add_noise((sent * batch.fades[:, None, None]).sum(dim=0), noise_var * each, rng=rng)
    found = code.estimator(Heard(received, noise_var * each, told * each, batch.own, batch.layer_energy))
    truth, update = fragments.sum(dim=0) * (told / num_active), batch.gains[:, None]
    lost = ((found - truth) / update).square().sum()
    return lost / (truth / update).square().sum().clamp(min=tiny)
