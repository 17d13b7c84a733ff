r"""Block fading: complex gains that stay for a block of slots, on every antenna of the base station.

    sound:  positions ─► path gains β ┐
            scattered + direct ─► h ──┼──► belief ĥ ──► power control ──► t, silence ──► Csi
            errors ───────────────────┘
    carry:  two real uses are a complex one ─► Σ_k √β h t · signal (late, detuned) ─► noise ─► over level ─► unpack

One round's draw is the same for every scheme: it comes from the generator of (seed, fading, round), and block after block,
so that a longer round begins like a shorter one. Every kind of error is always drawn, so that switching one on changes
nothing else.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Complex, Float, Inexact
from torch import Tensor

from aircomp.channel.awgn import add_noise, noise_variance
from aircomp.channel.base import AtDevices, AtReceiver, ChannelFacts, Csi, Offsets
from aircomp.channel.beams import choose_beams, heard_through
from aircomp.channel.expected import power_in_time, share_in_phase, share_in_time
from aircomp.channel.places import NEAREST, Layout, check_places, on_disc
from aircomp.channel.power import Belief, control_power
from aircomp.channel.recorded import RecordedGains, draw_recorded, load_gains
from aircomp.channel.settings import (
    COHERENT,
    SILENCING,
    SLOT_USES,
    Beamforming,
    BlockFadingSettings,
    ErrorSettings,
    FadingSettings,
    PowerSettings,
    RecordedSettings,
    StandardSettings,
)
from aircomp.channel.signal import Gains, Signal, slot_blocks
from aircomp.channel.standard import draw_standard
from aircomp.common.memory import check_memory
from aircomp.common.packing import pack, unpack
from aircomp.common.radio import GainModel
from aircomp.common.rng import fixed_generator
from aircomp.common.settings import setting_paths

_DRAW_BLOCK = 16
"""torch fills normal numbers in blocks of so many: whole ones make a longer draw begin like a shorter one."""
_ERRORS = 4
"""Numbers of a device and block that are not gains: error of the belief (2), phase error, none."""
_MODEL_DEVICES = 131_072
"""Of the draw that tells the receiver how gains are spread: a hundred thousand, so moments are known to half a percent."""
_MODEL_STANDARD = 8_192
"""Devices of that draw with a standard model, which takes longer."""
_MODEL_ROUND = (8, 512)
"""Devices and blocks of that draw where the devices of a block share a beam, which takes longer to find."""


@dataclass(frozen=True)
class Drawn:
    """All that is random in a round."""

    path_gain: Float[Tensor, " devices"]
    """Mean power of the gain over all antennas, one at a distance of the disc's radius."""
    position: Float[Tensor, "devices 2"]
    small: Complex[Tensor, "devices blocks antennas"]
    """The gain beside it, of mean power one over all antennas."""
    belief_error: Complex[Tensor, "devices blocks"]
    phase: Float[Tensor, "devices blocks"]
    """Standard normal, as the following one."""
    power: Float[Tensor, " devices"]
    timing: Float[Tensor, " devices"]
    """Between 0 and 1."""
    frequency: Float[Tensor, " devices"]
    """Between −1 and 1."""


@dataclass(frozen=True)
class Fading:
    """The channel of mobile radio: gains of a block, several antennas, devices that know their gains or do not.

    A real signal goes two uses at a time; it arrives as real uses again, so that schemes need not know.

        Fading(antennas=8, snr_db=5.0, control="inversion")

    Args:
        settings: Those of the channel.
        power: How devices choose their power.
        **values: Single settings of either, by name.
    """

    settings: BlockFadingSettings
    power: PowerSettings

    def __init__(
        self,
        settings: BlockFadingSettings | None = None,
        power: PowerSettings | None = None,
        **values: Any,  # Any: pydantic checks the types
    ):
        of_power = {name: values.pop(name) for name in setting_paths(PowerSettings) if name in values}
        given = FadingSettings() if settings is None else settings
        object.__setattr__(self, "settings", given.changed(**values) if values else given)
        controlled = PowerSettings() if power is None else power
        object.__setattr__(self, "power", controlled.changed(**of_power) if of_power else controlled)
        check_places(self.settings, self.power.control, COHERENT)

    @property
    def layout(self) -> Layout | None:
        """Mean gains by place; None where devices undo their gains, so that places do not tell how they arrive."""
        if self.power.control in COHERENT:
            return None
        s = self.settings
        return Layout(s.places, s.exponent, equalised=self.power.control == "statistical")

    @property
    def block_uses(self) -> int:
        """Real channel uses of a coherence block."""
        return self.settings.block_slots * SLOT_USES

    @property
    def facts(self) -> ChannelFacts:
        """What a link must know of it."""
        in_phase = self.power.control in COHERENT
        return ChannelFacts(self.settings.snr_reference, self.block_uses, self.settings.places, in_phase)

    @property
    def belief(self) -> Belief | RecordedGains:
        """The law of what devices believe."""
        s = self.settings
        if isinstance(s, RecordedSettings):
            return load_gains(s)
        return Belief(s.direct, s.errors.csi_correlation, s.exponent, s.places)

    def sound(self, num_devices: int, num_uses: int, *, rng: torch.Generator) -> Csi:
        """Draw the round's gains and errors, and let power control decide what each device does."""
        blocks = max(1, -(-num_uses // self.block_uses))
        csi = self._sounded(draw(self.settings, num_devices, blocks, rng=rng))
        return replace(
            csi,
            at_devices=self._told(csi),
            at_receiver=AtReceiver(
                None if csi.beams is None else csi.gains,
                block_uses=self.block_uses,
                gain_model=self.gain_model,
                layout=self.layout,
                knows_level=self.power.control == "common",
            ),
        )

    def _told(self, csi: Csi) -> AtDevices:
        """Add the SNR of every device alone, and the gains behind it.

        A reference to what is received divides by what arrives on average.
        """
        arriving, heard = csi.with_power, csi.behind_beams
        assert arriving is not None  # from `sound`
        assert heard is not None
        power, share = heard.values.abs().double().square(), csi.at_devices.share
        mean = float(arriving.values.abs().double().square().mean())
        total = 1.0 if self.settings.snr_reference == "transmit" else max(mean, 1e-30)
        snr = 10.0 ** (self.settings.snr_db / 10) / max(len(power), 1)
        if csi.offsets is not None:
            power = power * power_in_time(csi.offsets)[:, None, None]
            in_time = share_in_time(csi.offsets, self.block_uses // 2)[:, None]
            share = in_time.expand(power.shape[:2]) if share is None else share * in_time
        return replace(
            csi.at_devices,
            snr=(power.sum(dim=2) * (snr / total)).float(),
            share=share,
            over_noise=heard.values * math.sqrt(snr / total),
        )

    def _sounded(self, drawn: Drawn) -> Csi:
        errors = self.settings.errors
        rho = errors.csi_correlation
        gains = drawn.path_gain.sqrt()[:, None, None] * drawn.small
        first, beams, chosen = drawn.small[:, :, 0], None, None
        if isinstance(self.power, Beamforming):
            beams, chosen = choose_beams(gains, self.power.threshold)
            first = heard_through(drawn.small, beams)
        believed = rho * first + math.sqrt(1 - rho**2) * drawn.belief_error
        scale, level = control_power(self.power, self.belief, believed, drawn.path_gain, chosen)
        scale = scale * _amplitude(errors, drawn.power)[:, None] * torch.polar(*_turned(errors, drawn.phase))
        turned = rho < 1 or errors.phase_deg > 0
        return Csi(
            AtDevices(
                len(scale),
                scale.to(torch.complex64),
                self.block_uses,
                share=share_in_phase(errors, believed) if self.power.control in COHERENT and turned else None,
                positions=drawn.position.float().to(scale.device),
            ),
            Gains(gains.to(torch.complex64), self.block_uses),
            level=level.float(),
            offsets=_offsets(errors, drawn),
            beams=None if beams is None else beams.to(torch.complex64),
        )

    @cached_property
    def gain_model(self) -> GainModel:
        """What the base station knows of the gains beforehand: their moments behind power control, from many draws."""
        spread = math.expm1(_deviation(self.settings.errors) ** 2)
        if self.power.control not in COHERENT:
            return GainModel.unknown_phase(spread, self.settings.neighbours)
        silence = self.power.control in SILENCING
        if not _has_spread(self.settings.errors, self.power):
            return GainModel(silence=silence)
        csi = self._sounded(self._many())
        arriving = csi.behind_beams
        assert arriving is not None
        assert csi.level is not None
        values = arriving.values[:, :, 0] / csi.level
        if csi.offsets is not None:  # a late device's codeword is weaker; what comes late is noise to it
            values = (1 - csi.offsets.timing[:, None]).to(values) * values
        values = values[csi.at_devices.scale != 0].to(torch.complex128)
        mean, var_real = float(values.real.mean()), float(values.real.var())
        return GainModel(mean, var_real, float(values.imag.square().mean()), spread, silence)

    def _many(self) -> Drawn:
        """Draw many devices, or fewer in rounds of a usual size where those of a round share a beam."""
        rng = fixed_generator("gain model")
        if self.power.control == "beamforming":
            devices, blocks = _MODEL_ROUND
            if isinstance(self.settings, RecordedSettings):
                devices = min(devices, len(load_gains(self.settings).path_gain))
            return draw(self.settings, devices, blocks, rng=rng)
        if isinstance(self.settings, RecordedSettings):  # all that the file has
            users, blocks, _ = load_gains(self.settings).small.shape
            return draw(self.settings, users, blocks, rng=rng)
        devices = _MODEL_STANDARD if isinstance(self.settings, StandardSettings) else _MODEL_DEVICES
        return draw(self.settings.model_copy(update={"antennas": 1}), devices, 1, rng=rng)

    def carry(self, signal: Signal, csi: Csi, *, rng: torch.Generator) -> Inexact[Tensor, "antennas slots uses"]:
        """Add the signals up under their gains, and to each antenna noise of one variance."""
        settings, power = self.settings, signal.power if signal.is_complex else 2 * signal.power
        clean, uses = add_up(signal, csi)
        heard = clean.transpose(0, 1).flatten(1)  # all antennas have one noise
        num_active = csi.at_devices.num_devices
        var = noise_variance(heard, settings.snr_db, settings.snr_reference, num_active=num_active, power=power)
        assert csi.level is not None  # from `sound`
        blocks = slot_blocks(clean.shape[1], uses, self.block_uses)
        level = csi.level[blocks, None].to(clean.device)
        received = torch.stack([add_noise(antenna, var, rng=rng) / level for antenna in clean])
        if csi.beams is not None:
            weights = csi.beams.conj().T[:, blocks, None].to(received)
            received = (weights * received).sum(dim=0, keepdim=True)
        return received if signal.is_complex else unpack(received, uses)


def draw(settings: BlockFadingSettings, num_devices: int, blocks: int, *, rng: torch.Generator) -> Drawn:
    """Draw a round: what belongs to a device first, then block after block."""
    antennas = settings.antennas
    width = -(-(_ERRORS + 2 * antennas) // _DRAW_BLOCK) * _DRAW_BLOCK
    check_memory({"gains (channel.antennas, channel.block_slots)": 16 * blocks * num_devices * width})
    # in double precision, rounded at the end: torch rounds the last entries of a tensor differently, so the last bits of a
    # shorter round would differ from those of a longer one
    kind: Any = {"generator": rng, "dtype": torch.float64, "device": rng.device}
    own = torch.rand(num_devices, _DRAW_BLOCK, **kind)
    distance, angle, turn, timing, frequency = own.unbind(1)[:5]
    power = torch.randn(num_devices, _DRAW_BLOCK, **kind)[:, 0]
    numbers = torch.randn(blocks, num_devices, width, **kind).transpose(0, 1)
    pairs = torch.view_as_complex(numbers.unflatten(2, (-1, 2)).contiguous()) / math.sqrt(2)
    error, gains = pairs[:, :, 0], pairs[:, :, _ERRORS // 2 : _ERRORS // 2 + antennas]
    position = on_disc(distance.sqrt(), 2 * math.pi * angle)
    path_gain = distance.sqrt().clamp(min=NEAREST) ** -settings.exponent
    if isinstance(settings, RecordedSettings):
        path_gain, small = draw_recorded(
            settings, num_devices, blocks, seed=int(own[0, 5] * 2**31) if num_devices else 0
        )
        path_gain, small = path_gain.to(distance), small.to(gains)
    elif isinstance(settings, StandardSettings):
        small = draw_standard(
            settings.model,
            *gains.shape,
            delay_ns=settings.delay_ns,
            step_khz=settings.step_khz,
            seed=int(own[0, 5] * 2**31) if num_devices else 0,
        ).to(gains)
    else:
        small = _correlated(gains, settings.neighbours, settings.places)
        small = _with_direct_path(small, settings.direct, angle, turn)
    if settings.places > 1:
        each = Layout(settings.places, settings.exponent).gains(position)
        path_gain = each.mean(dim=1)
        relative = (each / path_gain[:, None]).repeat_interleave(antennas // settings.places, dim=1)
        small = small * relative.sqrt()[:, None]
    return Drawn(
        path_gain=path_gain,
        position=position,
        small=small,
        belief_error=error,
        phase=numbers[:, :, 2],
        power=power,
        timing=timing,
        frequency=2 * frequency - 1,
    )


def _correlated(gains: Complex[Tensor, "devices blocks antennas"], correlation: float, access_points: int) -> Tensor:
    """Let neighbouring antennas of an access point hear alike, by the root of the matrix of their correlations."""
    if correlation == 0:
        return gains
    place = torch.arange(gains.shape[2], dtype=torch.float64, device=gains.device)
    site = place // (gains.shape[2] // access_points)
    root = torch.linalg.cholesky(correlation ** (place[:, None] - place).abs() * (site[:, None] == site))
    return gains @ root.T.to(gains)


def _with_direct_path(scattered: Tensor, factor: float, angle: Tensor, turn: Tensor) -> Tensor:
    """Add a direct path from a random direction, half a wavelength between antennas."""
    if factor == 0:
        return scattered
    steps = torch.arange(scattered.shape[2], device=angle.device) * torch.sin(2 * math.pi * angle)[:, None]
    phase = math.pi * steps + 2 * math.pi * turn[:, None]
    direct = torch.polar(torch.ones_like(phase), phase)[:, None, :]
    return math.sqrt(factor / (1 + factor)) * direct + math.sqrt(1 / (1 + factor)) * scattered


def _deviation(errors: ErrorSettings) -> float:
    """Return the standard deviation of the logarithm of transmit power."""
    return math.log(10) / 10 * errors.power_db


def _amplitude(errors: ErrorSettings, power: Float[Tensor, " devices"]) -> Float[Tensor, " devices"]:
    """Return a device's amplitude over the one it means, of mean power one."""
    q = _deviation(errors)
    return torch.exp(power * (q / 2) - q**2 / 4)


def _turned(errors: ErrorSettings, phase: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ones_like(phase), math.radians(errors.phase_deg) * phase


def _offsets(errors: ErrorSettings, drawn: Drawn) -> Offsets | None:
    if errors.timing == 0 and errors.frequency == 0:
        return None
    return Offsets(errors.timing * drawn.timing, errors.frequency * drawn.frequency)


def _has_spread(errors: ErrorSettings, power: PowerSettings) -> bool:
    spread = errors.csi_correlation < 1 or errors.phase_deg > 0 or errors.power_db > 0 or errors.timing > 0
    return spread or power.control == "phase"


def add_up(signal: Signal, csi: Csi) -> tuple[Complex[Tensor, "antennas slots pairs"], int]:
    """Return what the antennas hear without noise, in complex uses, and how many uses a slot of the signal has."""
    gains = csi.with_power
    assert gains is not None  # from `sound`
    if csi.offsets is not None:
        return _one_by_one(signal, gains, csi.offsets)
    # a complex gain commutes with the packing, and an antenna at a time bounds memory
    heard = [signal.superpose(replace(gains, values=v[:, :, None]))[0] for v in gains.values.unbind(2)]
    uses = heard[0].shape[1]
    return torch.stack(heard if signal.is_complex else [pack(antenna) for antenna in heard]), uses


def _one_by_one(signal: Signal, gains: Gains, offsets: Offsets) -> tuple[Complex[Tensor, "antennas slots pairs"], int]:
    """Add devices up one after the other, each late and off in frequency by its own."""
    total, uses = torch.zeros(()), 0
    for k, symbols in enumerate(signal.each()):
        slots, uses = symbols.shape
        sent = symbols if symbols.is_complex() else pack(symbols)
        block = gains.block_uses if symbols.is_complex() else gains.block_uses // 2
        late = float(offsets.timing[k])
        stream = sent.flatten()
        stream = (1 - late) * stream + late * torch.nn.functional.pad(stream, (1, 0))[:-1]
        since = torch.arange(len(stream), dtype=torch.float64, device=stream.device) % block
        turns = 2 * math.pi * float(offsets.frequency[k]) * since
        stream = stream * torch.polar(torch.ones_like(turns), turns).to(stream)
        per_slot = gains.values[k, slot_blocks(slots, uses, gains.block_uses)].to(stream)
        total = total + per_slot.T[:, :, None] * stream.view(1, slots, -1)
    return total, uses
