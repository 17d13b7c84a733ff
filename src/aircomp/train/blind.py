r"""Training a blind receiver for fading on saved rounds: `aircomp pretrain FRAGMENTS… --preset blind-net`.

    codewords of some devices ──► gains of all antennas, noise ──► blind AMP with a learned schedule ──► counts ──► Adam
              ▲                                                          ▲
              └────────────────── the codebook, learned ─────────────────┘

Each batch draws an SNR, a number of antennas and how gains are spread: power error, correlation of antennas, frequency
offsets. The channel is that of the schemes; its gains are new in every 64 uses. Half of the batches have the choices of a
saved round; in the others devices choose independently, by a drawn power law. The loss is the negative log probability of
the true counts, over the number of devices.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.channel.fading import Fading
from aircomp.channel.settings import ErrorSettings
from aircomp.common import rng as rngs
from aircomp.common.packing import pack
from aircomp.common.results import Row
from aircomp.decoders.fading.blind import Blind
from aircomp.decoders.fading.multisource import Found
from aircomp.decoders.fading.receiver import expected_counts
from aircomp.errors import ArtefactError
from aircomp.layer.blind_net import BlindLayer, BlindNetworks
from aircomp.measure.harness import send
from aircomp.measure.metrics import count_accuracy
from aircomp.train.entry import RunOptions, train_on
from aircomp.train.fragments import load_round, round_name
from aircomp.train.loop import Loss, Training
from aircomp.train.recipe import BLIND_PRESETS as PRESETS
from aircomp.train.recipe import BlindTrainingSettings
from aircomp.train.rounds import Split, TrainingRound, arrange, deal, training_files
from aircomp.train.step import TOLD_ERROR

SNR_DB, ANTENNAS = (0.0, 5.0, 10.0), (1, 4, 8, 64)
"""At which held-out rounds are measured, as far as training had so many antennas."""
MOST_TESTED = 256
"""Slots of a held-out round that are measured."""
LEAST_PROBABILITY = 1e-9
"""Of a true count, in the loss: a single one that is thought impossible does not outweigh a batch."""
WORK = 1_024
"""Antennas times slots of a batch, at most: many antennas tell in few slots."""


@dataclass(frozen=True)
class FadedBatch:
    """What some devices choose, and the channel that they will meet."""

    indices: Int[Tensor, "devices slots"]
    popularity: Float[Tensor, " codewords"]
    told: float
    """The number of devices as the receiver believes it."""
    channel: Fading


def pretrain_blind(
    directories: Sequence[str | Path], settings: BlindTrainingSettings, out: str | Path, **options: Unpack[RunOptions]
) -> BlindLayer:
    """Train a blind receiver on fragments directories, and write it to `out`.

    The arguments are those of `aircomp.train.fit.pretrain`, and so are the files in `out`.

    Raises:
        TrainingDiverged: If the loss stops being finite; the best receiver so far is kept.
    """

    def make(paths: list[Path], **parts: Any) -> _BlindTraining:
        return _BlindTraining(settings, load_saved_rounds(paths, settings), **parts)

    return train_on(directories, settings, out, PRESETS, make, **options)


class _BlindTraining(Training[BlindNetworks, BlindLayer, FadedBatch, TrainingRound]):
    """The training of a blind receiver; its loss is -log P(true counts), over the number of devices."""

    def untrained(self) -> BlindNetworks:
        settings, number = self.settings, len(self.rounds.train[0].popularity)
        return BlindNetworks.untrained(number, settings.codeword_length, seed=settings.seed)

    def told(self, saved: TrainingRound) -> Tensor:
        return saved.popularity

    def draw(self, rounds: Sequence[TrainingRound], number: int, slots: Tensor, rng: torch.Generator) -> FadedBatch:
        return draw_batch(rounds[number], slots, self.settings, rng=rng)

    def loss(self, batch: FadedBatch, rng: torch.Generator) -> Loss:
        found, truth = decode_batch(self.model, batch, rng=rng)
        right = found.counts[:, None] == truth.clamp(max=float(found.counts.max()))[:, None]
        probability = ((found.weight[:, 0] * right).sum(1) / found.total[:, 0, 0]).clamp(min=LEAST_PROBABILITY)
        return Loss(-probability.log().sum(1).mean() / len(batch.indices))

    def wrap(self, model: BlindNetworks, config: dict[str, Any], training: dict[str, Any]) -> BlindLayer:
        return BlindLayer(model, config=config, training=training)

    def test(self, layer: BlindLayer) -> list[Row]:
        rows: list[Row] = []
        for antennas in (number for number in ANTENNAS if number <= self.settings.fading.antennas):
            for snr_db in SNR_DB:
                found = [self._measure(layer, n, antennas, snr_db) for n in range(len(self.rounds.test))]
                accuracy = sum(found) / len(found)
                rows.append({"antennas": antennas, "snr_db": snr_db, "snr_reference": "transmit"})
                rows[-1] |= {"rounds": len(found), "count_accuracy": accuracy}
        return rows

    @torch.no_grad()
    def _measure(self, layer: BlindLayer, number: int, antennas: int, snr_db: float) -> float:
        saved = self.rounds.test[number]
        rng = rngs.fixed_generator("test noise", number)
        chosen = saved.indices[:, :MOST_TESTED].to(self.device)
        sent = send(chosen, layer.codebook, new_gains(antennas, snr_db), rng=rng)
        receiver = Blind(pack(layer.codebook), learned=layer.net)
        decoded = sent.receive(receiver, saved.popularity.to(self.device), float(len(chosen)))
        return count_accuracy(sent.counts, decoded.counts)


def load_saved_rounds(directories: Sequence[Path], settings: BlindTrainingSettings) -> Split[TrainingRound]:
    """Read fragments directories; return rounds to train on, to choose the best epoch by, and to report on.

    Raises:
        ArtefactError: If a directory or file is missing or damaged, or rounds have codebooks of different sizes.
    """
    rounds = [_load(path) for path in training_files(directories)]
    sizes = {len(saved.popularity) for saved in rounds}
    if len(sizes) > 1:
        raise ArtefactError(f"the rounds have {sorted(sizes)} codewords; train on collections of one size")
    return deal(rounds, settings.data, rng=rngs.generator(settings.seed, "split of rounds"))


def _load(path: Path) -> TrainingRound:
    saved = arrange(load_round(path), "popularity", rng=rngs.fixed_generator("codeword order"))
    return TrainingRound(round_name(path), saved.indices, saved.popularity, saved.quant_codebook, None)


def draw_batch(
    saved: TrainingRound, slots: Int[Tensor, " slots"], settings: BlindTrainingSettings, *, rng: torch.Generator
) -> FadedBatch:
    """Make a batch of some slots of a round, or of as many drawn ones, with a channel drawn from its ranges."""
    data, fading = settings.data, settings.fading
    share, many, loud, alike, ramp, kind, devices, steep = torch.rand(8, generator=rng, dtype=torch.float64).tolist()
    antennas = round(fading.antennas**many)
    slots = slots[: max(WORK // antennas, 1)]
    indices, popularity = saved.indices[:, slots], saved.popularity
    if kind < data.drawn:
        number = round(data.devices_low * (data.devices_high / data.devices_low) ** devices)
        popularity = torch.arange(1.0, len(popularity) + 1) ** -(0.7 + 0.6 * steep)
        popularity /= popularity.sum()
        indices = torch.multinomial(popularity.expand(number, -1), len(slots), replacement=True, generator=rng)
    # a third of the batches has none of each, which is what most radios are nearest to
    power_db, correlation, ramp_deg = (
        largest * max(1.5 * at - 0.5, 0.0)
        for largest, at in ((fading.power_db, loud), (fading.correlation, alike), (fading.ramp_deg, ramp))
    )
    # from end to end of a codeword, which has half as many complex uses
    frequency = ramp_deg / 180 / max(settings.codeword_length // 2 - 1, 1)
    errors = ErrorSettings(power_db=power_db, frequency=min(frequency, 0.5))
    channel = new_gains(antennas, data.snr_db(share), correlation=correlation, errors=errors)
    told = len(indices) * math.exp(TOLD_ERROR * float(torch.randn((), generator=rng)))
    return FadedBatch(indices, popularity, told, channel)


def new_gains(antennas: int, snr_db: float, **values: Any) -> Fading:
    """Return a channel whose gains are new in every block, and the blocks as short as they can be."""
    return Fading(antennas=antennas, snr_db=snr_db, snr_reference="transmit", block_slots=1, **values)


def decode_batch(
    networks: BlindNetworks, batch: FadedBatch, *, rng: torch.Generator
) -> tuple[Found, Float[Tensor, "slots codewords"]]:
    """Send a batch and decode it; return what was found, and the true counts."""
    sent, model = send(batch.indices, networks.codebook, batch.channel, rng=rng), batch.channel.gain_model
    received, codebook = pack(sent.received).transpose(0, 1), pack(networks.codebook)
    rate, schedule = expected_counts(batch.told, batch.popularity), networks.net(len(sent.received), model)
    found = Blind(codebook).run(received, rate, model.power_var, schedule)
    return found, sent.counts.to(found.mean)
