"""`aircomp schemes`: what uplink schemes there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from aircomp.cli.common import parse, print_table

if TYPE_CHECKING:
    from aircomp.schemes.cost import Radio

COLUMNS = (
    "uplink",
    "sends",
    "offers",
    "needs_channel",
    "side_information",
    "channel_uses_per_parameter",
    "energy_per_device",
    "paper",
)


@dataclass(frozen=True)
class Options:
    """List all uplink schemes: what each sends, offers and needs, what a round of it costs, and its paper.

    Offers: counts and vectors (every device's own update) serve every aggregation rule. A mean serves the mean alone, a vote
    the sign vote alone. Channel: "in phase" means that all signals must arrive with the same phase. Energy: one codeword has
    energy one.

    Examples:
      aircomp schemes
      aircomp schemes --model resnet --num-active 20 --out schemes
    """

    model: str | None = None
    """A model by name, in its usual width; digits-cnn by default."""
    parameters: int | None = None
    """A number of parameters, in place of a model."""
    num_active: int = 10
    """How many devices send."""
    bandwidth_hz: float = 1e6
    """Bandwidth of the radio."""
    out: Path | None = None
    """Directory for result.json; nothing is written without it."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the result in --out."""


def run(args: Sequence[str]) -> None:
    """Parse, measure, print."""
    options = parse(Options, args, "schemes")
    # only now: they import torch, and a mistake is told without it
    from aircomp.cli.cost import count_parameters
    from aircomp.common import results
    from aircomp.common.outdir import open_directory
    from aircomp.measure.fields import columns_of
    from aircomp.schemes.cost import Radio
    from aircomp.schemes.settings import scheme_names

    neither = options.model is None and options.parameters is None
    num_params = count_parameters("digits-cnn" if neither else options.model, options.parameters)
    radio = Radio(options.bandwidth_hz)
    rows = [scheme_row(name, num_params, options.num_active, radio) for name in scheme_names()]
    if options.out is not None:
        config = {"num_parameters": num_params, "num_active": options.num_active}
        with open_directory(options.out, "schemes", overwrite=options.overwrite):
            results.write_result(options.out / "result.json", "schemes", config, 0, rows)
    print_table(f"one round, {num_params:,} parameters, {options.num_active} devices", rows, columns_of(COLUMNS))


def scheme_row(name: str, num_params: int, num_active: int, radio: "Radio") -> dict[str, Any]:
    """Return what is said of a scheme, and what a round of it costs.

    Args:
        name: One of `scheme_names()`.
        num_params: Parameters of the model.
        num_active: Devices that send.
        radio: The air that they share.
    """
    from aircomp.schemes.cost import air_cost
    from aircomp.schemes.registry import make_scheme, scheme_class

    facts, made = scheme_class(name).facts, make_scheme(name)
    words = {"sends": facts.sends, "offers": made.offers.__name__.lower(), "needs_channel": facts.needs}
    return air_cost(made, num_params, num_active, radio) | words | {"paper": facts.source}
