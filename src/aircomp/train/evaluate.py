"""How well do decoders do on saved rounds? Each decoder gets the same slots and the same noise."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import get_args

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.channel.awgn import Awgn, noise_variance, superpose
from aircomp.channel.settings import HIGHEST_SNR_DB, LOWEST_SNR_DB
from aircomp.common import rng as rngs
from aircomp.common.checks import check_choice, check_number, check_numbers, check_path, check_type
from aircomp.common.radio import SnrReference
from aircomp.common.results import Row
from aircomp.common.tensors import check_device, moved
from aircomp.common.threads import one_thread
from aircomp.decoders.amp.posterior import Posterior
from aircomp.decoders.base import Decoder, check_received
from aircomp.decoders.settings import SideInformation
from aircomp.decoders.side import visible_side_information
from aircomp.decoders.simple import Genie
from aircomp.encode.codebook import codebook_kinds
from aircomp.engines.pool import workers
from aircomp.errors import ConfigError
from aircomp.layer.communication import CommunicationLayer
from aircomp.measure import information, metrics
from aircomp.measure.harness import Trial, send
from aircomp.measure.information import (
    AccuracyLimit,
    capacity_bits,
    draw_counts,
    entropy_bits,
    signal_bits,
    signal_covariance,
)
from aircomp.schemes.digital.decoders import (
    DecoderChoice,
    decoder_and_codebook,
    decoder_names,
    make_decoder,
    trained_decoders,
)
from aircomp.train.fragments import FragmentRound, load_round, round_files

# slots of independent devices that are drawn for their power: 8,192 tell signal_bits to 0.1 under `slot` SNR
SLOTS_AT_ONCE, DRAWS = 512, 16


@dataclass(frozen=True)
class Plan:
    """What to decode, and how."""

    decoders: Sequence[str]
    snr_db: Sequence[float]
    snr_reference: SnrReference = "round"
    codebook: str = "auto"
    """Random-access codebook; auto: the one that each decoder was designed for."""
    codeword_length: int | None = None
    """Channel uses of a codeword, in every codebook; None: as the layer has them, if one is given, or else 64 (paper)."""
    layer: Path | None = None
    """Directory of a trained layer, or the name of one of the package; the package's of the rounds' sizes if None."""
    side_information: SideInformation = "both"
    """What decoders are told of each slot beforehand, as far as it was saved."""
    num_slots: int | None = None
    """Slots sampled from each round; all if None."""
    num_active: int | None = None
    """Devices of each round that send, the first so many; all if None."""
    seed: int = 0
    device: str = "cpu"
    yardstick: bool = False
    """Whether to sample the posterior for every codebook as well, and tell how far below it each decoder stays."""


OnStep = Callable[[str, int, int], None]
RoundRows = dict[tuple[str, float], Row]
"""What was measured of one round, by decoder and SNR."""


def evaluate(directory: Path, plan: Plan, *, num_workers: int = 1, on_step: OnStep | None = None) -> list[Row]:
    """Decode every round of a fragments directory; return one row for each decoder and SNR.

    Args:
        directory: The fragments directory.
        plan: Decoders, SNRs and sampling.
        num_workers: Rounds decoded at a time, each by a process of one thread; one round has all threads of this process.
        on_step: Called with a note, the steps done and their number.
    """
    check_path("directory", directory)
    check_plan(plan)
    check_number("workers", num_workers, low=1, high=1024, integer=True)
    files, tell = round_files(Path(directory)), on_step or _tell_nobody
    alone = num_workers == 1 or len(files) == 1
    rounds = _one_by_one(files, plan, tell) if alone else _side_by_side(files, plan, num_workers, tell)
    asked = dict.fromkeys(product(plan.decoders, plan.snr_db))
    return [_merge(name, snr_db, [found[name, snr_db] for found in rounds], plan) for name, snr_db in asked]


def _tell_nobody(note: str, done: int, total: int) -> None:
    pass


def _one_by_one(files: Sequence[Path], plan: Plan, tell: OnStep) -> list[RoundRows]:
    def steps_of(index: int) -> OnStep:
        return lambda note, done, total: tell(note, index * total + done, len(files) * total)

    return [_evaluate_round(path, index, plan, steps_of(index)) for index, path in enumerate(files)]


def _side_by_side(files: Sequence[Path], plan: Plan, num_workers: int, tell: OnStep) -> list[RoundRows]:
    found: dict[int, RoundRows] = {}
    with workers(min(num_workers, len(files))) as crew:
        running = {crew.submit(_evaluate_alone, path, index, plan): index for index, path in enumerate(files)}
        while running:
            for future in crew.finished(running):
                index = running.pop(future)
                found[index] = future.result()
                tell(files[index].stem, len(found), len(files))
    return [found[index] for index in range(len(files))]


def _evaluate_alone(path: Path, index: int, plan: Plan) -> RoundRows:
    with one_thread():
        return _evaluate_round(path, index, plan)


def _evaluate_round(path: Path, index: int, plan: Plan, tell: OnStep = _tell_nobody) -> RoundRows:
    whole = with_devices(load_round(path), plan.num_active, path)
    source, saved = _Source.of(whole), moved(sample_slots(whole, plan, index), plan.device)
    books, levels = _books(saved, plan), list(dict.fromkeys(plan.snr_db))
    found, done = RoundRows(), 0
    total = len(levels) * sum(len(book.decoders) + plan.yardstick for book in books)
    for book, snr_db in product(books, levels):
        noise = rngs.generator(plan.seed, "evaluated noise", index)  # the same for every decoder and SNR, up to scale
        sent = send(saved.indices, book.codebook, Awgn(snr_db, plan.snr_reference), rng=noise)
        shared = {"codebook": book.kind} | source.limits(book.codebook, snr_db, plan, index)
        for name in ("yardstick", *book.decoders) if plan.yardstick else book.decoders:
            if name == "yardstick":
                shared |= _yardstick(saved, sent, plan)
            else:
                found[name, snr_db] = _decode(saved, book.decoders[name], sent, plan) | shared
            done += 1
            tell(f"{name} {snr_db:g} dB", done, total)
    return found


def check_plan(plan: Plan) -> None:
    """Refuse a plan that cannot be carried out, or a part of it that would do nothing.

    Raises:
        ConfigError: Naming the part.
    """
    check_type("plan", plan, Plan, "a Plan")
    check_type("decoders", plan.decoders, (list, tuple), f"a list of {', '.join(decoder_names())}")
    if not plan.decoders:
        raise ConfigError(f"decoders is empty; expected at least one of {', '.join(decoder_names())}")
    for name in plan.decoders:
        check_choice("decoder", name, decoder_names())
    check_numbers("snr_db", plan.snr_db, low=LOWEST_SNR_DB, high=HIGHEST_SNR_DB)
    check_choice("snr_reference", plan.snr_reference, get_args(SnrReference))
    check_choice("codebook", plan.codebook, ("auto", "layer", *codebook_kinds()))
    check_choice("side_information", plan.side_information, get_args(SideInformation))
    if plan.codeword_length is not None:
        check_number("codeword_length", plan.codeword_length, low=1, integer=True)
        if plan.layer is not None:
            raise ConfigError(
                "a layer was given, whose codewords have a length of their own; leave out codeword_length"
            )
    if plan.num_slots is not None:
        check_number("slots", plan.num_slots, low=1, integer=True)
    if plan.num_active is not None:
        check_number("num_active", plan.num_active, low=1, integer=True)
    check_number("seed", plan.seed, low=0, integer=True)
    check_device("device", plan.device)
    if plan.layer is not None and plan.codebook != "layer":
        form = CommunicationLayer.load(plan.layer).form
        takers = [name for name, forms in trained_decoders().items() if form in forms]
        if not set(takers) & set(plan.decoders):
            raise ConfigError(
                f"a layer of form {form} was given, but no decoder takes it; use the decoder {' or '.join(takers)}, or "
                "codebook = 'layer'"
            )


def with_devices(saved: FragmentRound, num_active: int | None, path: Path) -> FragmentRound:
    """Return the round as it is if only its first devices send.

    Raises:
        ConfigError: If it has fewer.
    """
    if num_active is None:
        return saved
    if num_active > saved.num_active:
        raise ConfigError(f"{path} has {saved.num_active} devices, not {num_active}; lower num_active or collect more")
    return replace(saved, indices=saved.indices[:num_active], fragments=None)


def sample_slots(saved: FragmentRound, plan: Plan, index: int) -> FragmentRound:
    """Take a seeded sample of the round's slots, in their order."""
    if plan.num_slots is None or plan.num_slots >= saved.num_slots:
        return saved
    rng = rngs.generator(plan.seed, "evaluated slots", index)
    return saved.of_slots(torch.randperm(saved.num_slots, generator=rng)[: plan.num_slots].sort().values)


@dataclass(frozen=True)
class _Book:
    """A random-access codebook and the decoders that go with it."""

    kind: str
    codebook: Float[Tensor, "codewords uses"]
    decoders: dict[str, Decoder]


def _books(saved: FragmentRound, plan: Plan) -> list[_Book]:
    """Build every decoder once for a round; those of one codebook meet the same received slots."""
    choice = DecoderChoice(
        codebook=plan.codebook,
        num_codewords=saved.num_codewords,
        codeword_length=_codeword_length(plan),
        layer=plan.layer,
        snr_reference=plan.snr_reference,
        seed=plan.seed,
        device=plan.device,
    )
    form = None if plan.layer is None else CommunicationLayer.load(plan.layer).form
    books: list[_Book] = []
    for name in plan.decoders:
        layer = (
            plan.layer if form in trained_decoders().get(name, (form,)) else None
        )  # a trained decoder of another form has its own
        decoder, codebook, kind = decoder_and_codebook(replace(choice, decoder=name, layer=layer))
        same = next((book for book in books if torch.equal(book.codebook, codebook)), None)
        if same is None:
            books.append(same := _Book(kind, codebook, {}))
        same.decoders[name] = decoder
    return books


def _codeword_length(plan: Plan) -> int:
    """Return one for all codebooks, so that all decoders have the same channel uses."""
    if plan.layer is not None:
        return CommunicationLayer.load(plan.layer).codebook.shape[1]
    return plan.codeword_length or 64


def _decode(saved: FragmentRound, decoder: Decoder, sent: Trial, plan: Plan) -> Row:
    if isinstance(decoder, Genie):
        decoder = Genie(truth=sent.counts)
    begun = time.perf_counter()
    decoded = sent.decode(decoder, saved.popularity, **saved.known(plan.side_information))
    seconds = time.perf_counter() - begun
    found = sent.compare(decoded, saved.quant_codebook)
    return found | {"num_active_error": decoded.num_active_error, "seconds": seconds, "slots": saved.num_slots}


def _yardstick(saved: FragmentRound, sent: Trial, plan: Plan) -> Row:
    """Decode by sampling the posterior, with the rates and the noise that `gamp` estimates, and the true number of devices.

    The sampler is given the true number. With a wrong one it would solve a different problem.
    """
    posterior, received = make_decoder("posterior", sent.codebook, snr_reference=plan.snr_reference), sent.received[0]
    assert isinstance(posterior, Posterior)
    popularity = check_received(received, saved.popularity.to(received), sent.codebook)  # as every decoder does
    shared, noise_var = posterior.pilot.estimate(received, popularity, float(saved.num_active))
    groups = visible_side_information(plan.side_information, saved.slot_layers, saved.bs_indices)
    rate = posterior.pilot.slot_rates(received, noise_var, shared.rate, *groups)
    samples = posterior.sample(received, rate, saved.num_active, noise_var)
    return {
        "posterior_count_accuracy": metrics.count_accuracy(sent.counts, samples.median),
        "chains_disagree": samples.disagreement.double().mean().item(),
    }


@dataclass(frozen=True)
class _Source:
    """How the devices of a round choose, as far as independent devices go: what the information of a slot depends on."""

    shares: Float[Tensor, " codewords"]
    num_active: int
    accuracy: AccuracyLimit | None

    @classmethod
    def of(cls, whole: FragmentRound) -> "_Source":
        """Take the shares of all slots: those of a sample would seem to hold less."""
        shares = whole.indices.flatten().bincount(minlength=whole.num_codewords).double()
        few = whole.num_active <= information.MOST_DEVICES
        return cls(shares, whole.num_active, AccuracyLimit.of(shares, whole.num_active) if few else None)

    def limits(self, codebook: Float[Tensor, "codewords uses"], snr_db: float, plan: Plan, index: int) -> Row:
        """Return what a slot holds and carries, in bits, and the accuracy that this allows (see `information`)."""
        rng = rngs.generator(plan.seed, "slots of independent devices", index)
        codebook = codebook.to("cpu")
        drawn = (draw_counts(self.shares, self.num_active, SLOTS_AT_ONCE, rng=rng) for _ in range(DRAWS))
        signal = torch.cat([superpose(counts, codebook) for counts in drawn])
        energy = codebook.square().sum(dim=1).mean().item()
        noise_var = noise_variance(
            signal, snr_db, plan.snr_reference, num_active=self.num_active, power=energy / codebook.shape[1]
        )
        if plan.snr_reference == "transmit":  # what arrives may add up to more or less than what was sent
            snr_db = 10 * (signal.double().square().mean() / noise_var.mean()).log10().item()
        bits = signal_bits(signal_covariance(codebook, self.shares, self.num_active), noise_var)
        return {
            "entropy_bits": entropy_bits(self.shares, self.num_active),
            "capacity_bits": capacity_bits(snr_db, codebook.shape[1]),
            "signal_bits": bits,
            "count_accuracy_limit": None if self.accuracy is None else self.accuracy.at(bits),
        }


def _merge(name: str, snr_db: float, rows: list[Row], plan: Plan) -> Row:
    merged: Row = {"decoder": name, "codebook": rows[0]["codebook"], "snr_db": snr_db}
    merged |= {"snr_reference": plan.snr_reference, "rounds": len(rows)}
    names = [field for field in rows[0] if field not in ("codebook", "seconds", "slots")]
    merged |= {field: _mean([row[field] for row in rows]) for field in names}
    if plan.yardstick:
        merged["below_posterior"] = merged["posterior_count_accuracy"] - merged["count_accuracy"]
    seconds = sum(row["seconds"] for row in rows)
    return merged | {"seconds": seconds, "slots_per_second": sum(row["slots"] for row in rows) / seconds}


def _mean(values: list[float | None]) -> float | None:
    """Return the mean over rounds, or None where one of them has no value."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None
