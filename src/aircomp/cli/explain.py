"""`aircomp explain`: one slot drawn, decoded layer by layer or heard through fading; or the plan of a round."""

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from aircomp.channel.settings import HIGHEST_SNR_DB, LOWEST_SNR_DB, BlockFadingSettings, ChannelSettings, PowerSettings
from aircomp.cli.common import output_directory, print_table
from aircomp.cli.flags import parse_settings
from aircomp.common.checks import check_choice, check_number
from aircomp.common.outdir import open_directory
from aircomp.common.settings import Settings
from aircomp.errors import ConfigError
from aircomp.federation.experiment import Experiment
from aircomp.layer.zoo import PAPER
from aircomp.measure.fields import columns_of
from aircomp.schemes.settings import SchemeSettings

if TYPE_CHECKING:
    from aircomp.report.explain import Look


class Radio(Settings):
    """What lies between the devices and the base station, and their power; the SNR is --snr-db."""

    channel: ChannelSettings = ChannelSettings()
    power: PowerSettings = PowerSettings()


@dataclass(frozen=True)
class Options:
    """Send one round over the air and show one of its slots.

    Without fading, show how the learned decoder decodes it, layer by layer. With fading, show how the devices' signals
    arrive, who is silent, and what the receiver counted beside what was sent. With --uplink refined-analog, show how the
    base station plans the stages of a round.

    Examples:
      aircomp explain
      aircomp explain --snr-db 3 --slot 7 --num-active 12
      aircomp explain --layer runs/layer
      aircomp explain --channel fading --channel.antennas 8
      aircomp explain --channel fading --power.control inversion --channel.errors.phase-deg 30
      aircomp explain --uplink refined-analog --snr-db 20
    """

    snr_db: float = 5.0
    """Signal-to-noise ratio in decibels."""
    num_active: int = 10
    """Devices that send."""
    slot: int = 0
    """Which of the 512 slots."""
    layer: Path | None = None
    """Without fading: directory of a trained layer, or the name of one of the package (default: the paper's)."""
    uplink: str | None = None
    """With fading: the receiver; by default widened where signals arrive in phase, and blind elsewhere. Without fading:
    refined-analog, whose plan is shown."""
    radio: Annotated[Radio, tyro.conf.arg(name="")] = field(default_factory=Radio)
    seed: int = 0
    """Everything random derives from it."""
    out: Path | None = None
    """Directory for report.html and result.json; by default a new one under runs/."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace what is in --out."""


NUM_SLOTS = 512
"""Of the round: enough to estimate what its slots share."""
PLANNED = "refined-analog"
"""The scheme whose rounds are planned."""


def run(args: Sequence[str]) -> None:
    """Follow a slot and write its page."""
    options, given = parse_settings(
        Options, args, "explain", Radio(), field="radio", hidden=("channel.snr_db",), full_name=_full_name
    )
    check_number("slot", options.slot, low=0, high=NUM_SLOTS - 1, integer=True)
    check_number("num_active", options.num_active, low=1, high=100, integer=True)
    check_number("seed", options.seed, low=0, integer=True)
    check_number("snr_db", options.snr_db, low=LOWEST_SNR_DB, high=HIGHEST_SNR_DB)
    from aircomp.common import results  # from here on with torch
    from aircomp.federation.configure import check_given, check_phase

    experiment = _experiment(options)
    check_given(experiment, given)
    check_phase(experiment)
    faded = isinstance(options.radio.channel, BlockFadingSettings)
    plain = {field.name: getattr(options, field.name) for field in dataclasses.fields(Options) if field.name != "radio"}
    config = {name: str(value) if isinstance(value, Path) else value for name, value in plain.items()}
    config |= options.radio.model_dump()
    command = _without_output(args)
    with output_directory(options.out, "explain") as out, open_directory(out, "explain", overwrite=options.overwrite):
        if options.uplink == PLANNED:
            look = _planned(options)
        else:
            look = _faded(options, experiment) if faded else _layer_by_layer(options)
        page = look.write(out, command, config)
        results.write_result(out / "result.json", "explain", config, options.seed, look.rows)
    what = "round" if options.uplink == PLANNED else "slot"
    print_table(f"one {what}, {look.table.lower()}", look.rows, columns_of(look.rows[0]))
    print(page)


def _without_output(args: Sequence[str]) -> str:
    """Return the command that shows the slot again, safe to paste into a shell, wherever its page went."""
    kept = [
        word
        for before, word in zip(["", *args], args, strict=False)
        if before != "--out" and word not in ("--out", "--overwrite") and not word.startswith("--out=")
    ]
    return shlex.join(["aircomp", "explain", *kept])


def _full_name(path: str) -> str:
    return "channel.kind" if path == "channel" else path


def _experiment(options: Options) -> Experiment:
    """Return what is sent as a federated run would describe it, so that settings are checked in the same words."""
    from aircomp.federation.configure import default_scheme
    from aircomp.schemes.digital.receivers import receiver_names

    faded = isinstance(options.radio.channel, BlockFadingSettings)
    if faded and options.layer is not None:
        raise ConfigError("--layer was given, but receivers for fading take no trained layer; leave it out")
    if options.uplink is not None:
        check_choice("uplink", options.uplink, [*receiver_names(), PLANNED])
        if options.uplink == PLANNED and (faded or options.layer is not None):
            raise ConfigError(
                f"--uplink {PLANNED} has a plan in white noise only, and no layer; leave --channel and --layer out"
            )
        if not faded and options.uplink != PLANNED:
            raise ConfigError(f"--uplink {options.uplink} is a receiver for fading; add --channel fading")
    given = () if options.uplink is None else ("uplink.name",)
    name = options.uplink or ("ideal" if faded else "amp-da-net")
    air = options.radio.channel.changed(snr_db=options.snr_db)
    return default_scheme(Experiment(uplink=SchemeSettings(name=name), channel=air, power=options.radio.power), given)


def _layer_by_layer(options: Options) -> "Look":
    from aircomp.layer.communication import CommunicationLayer
    from aircomp.report.explain import Look, figures_of, rows_of, trace_slot
    from aircomp.schemes.digital.drawn import drawn_choices

    layer = CommunicationLayer.load(options.layer or PAPER)
    chosen, popularity = drawn_choices(
        len(layer.codebook), num_active=options.num_active, num_slots=NUM_SLOTS, seed=options.seed
    )
    text = (
        f"{options.num_active} devices each send one of {len(layer.codebook)} codewords at the same time, at "
        f"{options.snr_db:g} dB. The network of form {layer.form} starts from the popularity of the codewords. Every layer "
        "explains more of what the antenna received. Row 0 of the table is the start."
    )
    trace = trace_slot(layer, chosen, popularity, snr_db=options.snr_db, slot=options.slot, seed=options.seed)
    heading = "One slot, layer by layer"
    return Look("Inside the decoder", heading, text, "Layer by layer", rows_of(trace), figures_of(trace))


def _planned(options: Options) -> "Look":
    from aircomp.report.explain import Look, planned_round

    rows, nmse = planned_round(snr_db=options.snr_db, num_active=options.num_active, seed=options.seed)
    text = (
        f"{options.num_active} devices each send an update of which every number is as large as every other on average, at a "
        f"transmit SNR of {options.snr_db:g} dB. The base station plans the stages of a round by the noise of those before. "
        f"Modulo stages come where one device alone is heard well. The error of the mean in this round is {nmse:.3g}."
    )
    return Look("The plan of a round", "One round, stage by stage", text, "Stage by stage", rows)


def _faded(options: Options, experiment: Experiment) -> "Look":
    from aircomp.report.explain import Look
    from aircomp.report.faded import figures_of, look_at_slot, rows_of
    from aircomp.schemes.digital.drawn import hear_round

    assert isinstance(experiment.channel, BlockFadingSettings)
    receiver, antennas = experiment.uplink.name, experiment.channel.antennas
    sizes = {"num_active": options.num_active, "num_slots": NUM_SLOTS, "seed": options.seed}
    slot = look_at_slot(hear_round(receiver, experiment.channel, experiment.power, **sizes), options.slot)
    heard = "one antenna" if antennas == 1 else f"{antennas} antennas"
    text = (
        f"{int(slot.speaking.sum())} of {options.num_active} devices each send a codeword at the same time, at "
        f"{options.snr_db:g} dB, to {heard}. The first figure shows the complex gain with which each device arrives at the "
        "first antenna, by number; one that is silent in this block stands where its own gain is. The second shows how many "
        f"devices the receiver {receiver} thought had sent each codeword. In the whole round it is right about "
        f"{slot.round_accuracy:.0%} of the counts."
    )
    heading = "One slot behind fading"
    return Look("Inside a faded slot", heading, text, "Device by device", rows_of(slot), figures_of(slot))
