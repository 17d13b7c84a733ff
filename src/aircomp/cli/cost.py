"""`aircomp cost`: what a scheme costs for a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field

from aircomp.cli.common import parse, print_table
from aircomp.cli.flags import with_full_names
from aircomp.common.checks import check_number
from aircomp.common.outdir import open_directory
from aircomp.common.settings import Settings
from aircomp.errors import ConfigError
from aircomp.measure.fields import columns_of
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.settings import LayerPath, SchemeSettings, scheme_names

COLUMNS = (
    "uplink",
    "num_slots",
    "channel_uses",
    "channel_uses_per_parameter",
    "air_seconds",
    "round_seconds",
    "round_joules",
    "path_loss_db",
    "energy_per_device",
    "downlink_bits",
    "base_station_gflop",
    "side_information",
)

MOST_PARAMETERS = 10**15


class Parts(Settings):
    """Sizes that schemes share; those that a scheme does not have leave it as it is."""

    quantize: QuantizeSettings = QuantizeSettings()
    codeword_length: int = Field(default=64, ge=1)
    """Real channel uses of one slot (paper: l = 64)."""
    layer: LayerPath = None
    """Directory of something trained, for the schemes that take it."""


@dataclass(frozen=True)
class Options:
    """Tell what one round costs: slots, channel uses, seconds, joules, base-station work.

    Energy per device is in units of one codeword's; a complex channel use counts as two real ones. Seconds hold the broadcast
    at two bits a symbol, the air with its pilots, and a millisecond of turnaround twice. Of a training to a target accuracy,
    multiply by the rounds that it takes: `aircomp arena --task training` draws them.

    Examples:
      aircomp cost --model resnet
      aircomp cost --parameters 11000000 --bandwidth-hz 20e6 --uplink amp-da
    """

    model: str | None = None
    """A model by name, at its usual width."""
    parameters: int | None = None
    """Number of parameters, instead of a model."""
    uplink: tuple[str, ...] = ()
    """Schemes to compare; by default all that can be sent so."""
    num_active: int = 10
    """Devices that transmit."""
    bandwidth_hz: Annotated[float, tyro.conf.arg(aliases=["--bandwidth"])] = 1e6
    """Bandwidth of the radio."""
    power_dbm: Annotated[float, tyro.conf.arg(aliases=["--power"])] = 23.0
    """Mean power with which a device sends; 23 dBm are .2 W."""
    noise_figure_db: Annotated[float, tyro.conf.arg(aliases=["--noise-figure"])] = 5.0
    """Noise of the receiver over that of its temperature."""
    settings: Annotated[Parts, tyro.conf.arg(name="uplink")] = field(default_factory=Parts)
    out: Path | None = None
    """Directory for result.json; nothing is written without it."""
    overwrite: tyro.conf.FlagCreatePairsOff[bool] = False
    """Replace the result in --out."""


def run(args: Sequence[str]) -> None:
    """Parse, compute, print."""
    options = parse(Options, with_full_names(args, _full_name), "cost")
    from aircomp.common import results  # from here on with torch
    from aircomp.schemes.cost import Radio, round_cost
    from aircomp.schemes.registry import make_scheme, scheme_class

    num_params, settings = count_parameters(options.model, options.parameters), options.settings
    names = options.uplink or tuple(scheme_names())
    if settings.layer is not None and not any(
        "layer" in scheme_class(n).settings_class.model_fields for n in options.uplink
    ):
        raise ConfigError(
            "a layer was given, but no --uplink that takes one; name the one that it is for, say gamp-net"
        )
    radio = Radio(options.bandwidth_hz, options.power_dbm, options.noise_figure_db)
    rows, left_out = [], {}
    for name in names:
        try:
            scheme = make_scheme(_settings_of(name, settings))
            rows.append(round_cost(scheme, num_params, options.num_active, radio))
        except ConfigError as error:
            if options.uplink or not rows:  # the first of all schemes refuses only what none can take
                raise
            left_out[name] = str(error)
    if options.out is not None:
        config = {"num_parameters": num_params, "uplink": settings.model_dump(mode="json")}
        config |= {"left_out": left_out}
        with open_directory(options.out, "cost", overwrite=options.overwrite):
            results.write_result(options.out / "result.json", "cost", config, 0, rows)
    print_table(f"one round, {num_params:,} parameters, {options.num_active} devices", rows, columns_of(COLUMNS))
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}")


def _settings_of(name: str, parts: Parts) -> SchemeSettings:
    """Return a scheme's settings with the sizes that it has."""
    from aircomp.schemes.registry import scheme_class

    model, values = scheme_class(name).settings_class, parts.model_dump(exclude_unset=True)
    found: SchemeSettings = model(name=name)
    for field_name, value in values.items():
        if isinstance(value, dict) and field_name in model.model_fields:
            known = type(getattr(found, field_name)).model_fields
            found = found.changed(**{f"{field_name}.{part}": v for part, v in value.items() if part in known})
        elif field_name in model.model_fields:
            found = found.changed(**{field_name: value})
    return found


def _full_name(path: str) -> str:
    return "uplink.layer" if path == "layer" else path


def count_parameters(model: str | None, parameters: int | None) -> int:
    """Return the number of parameters asked for, by the name of a model or as it is."""
    if (model is None) == (parameters is None):
        raise ConfigError("give either --model NAME or --parameters N, for example --model resnet")
    if parameters is not None:
        check_number("parameters", parameters, low=1, high=MOST_PARAMETERS, integer=True)
        return parameters
    from aircomp.common import rng as rngs
    from aircomp.federation import models
    from aircomp.federation.settings import ModelSettings

    name = str(model)
    channels = 1 if name in ("digits-cnn", "mnist-cnn") else 3
    module = models.build(ModelSettings(name=name), 10, channels, rng=rngs.fixed_generator("model"))
    return sum(p.numel() for p in module.parameters())
