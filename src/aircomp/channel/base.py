"""What a channel is: it sounds the devices once a round, then carries what they send."""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Complex, Float, Inexact
from torch import Tensor

from aircomp.channel.settings import AwgnSettings, BlockFadingSettings, ChannelSettings, PowerSettings
from aircomp.channel.signal import Gains, Signal, slot_blocks
from aircomp.common.radio import GainModel, SnrReference


@dataclass(frozen=True)
class Attack:
    """What attackers among the devices of a round do on the air, beside what their messages say."""

    devices: Bool[Tensor, " devices"]
    """Who they are."""
    report: float = 0.0
    """The amplitude that they report over the true one, where all agree on a scale; zero: honest devices agree alone."""
    jams: bool = False
    """Whether they send noise of the nominal energy in place of a signal."""


@dataclass(frozen=True)
class AtDevices:
    """What the devices know of the channel, and what power control lets each of them do."""

    num_devices: int
    scale: Inexact[Tensor, "devices blocks"] | None = None
    """What each device multiplies its signal with; zero is silence. None: one throughout."""
    block_uses: int = 0
    """Channel uses of a block, where there is a scale."""
    snr: Float[Tensor, "devices blocks"] | None = None
    """Signal over noise of a channel use, on all antennas together, of a device that sends alone at nominal power: what
    schemes with turns choose their rates by. One block where there is no scale; None: devices are not told."""
    share: Float[Tensor, "devices blocks"] | None = None
    """The share of that signal which arrives as the base station expects it; the rest is noise (`channel/expected.py`). None:
    all of it."""
    over_noise: Inexact[Tensor, "devices blocks antennas"] | None = None
    """The gain of each device at nominal power on every antenna, over the deviation of the noise: what bounds of devices that
    send at once are worked out from."""
    positions: Float[Tensor, "devices 2"] | None = None
    """Where each device is, in radii of the disc, which it knows; None where places do not matter."""
    reports: Float[Tensor, " devices"] | None = None
    """The amplitude that each device reports over its true one, where all agree on a scale: one is honest, and a device with
    zero takes no part. None: all are honest."""

    def attacked(self, attack: Attack) -> "AtDevices":
        """Return the same where attackers report what they like; where nobody is honest, all agree as if they were."""
        reports = torch.where(attack.devices, attack.report, 1.0)
        return replace(self, reports=reports if bool(reports.any()) else None)

    def as_reported(self, values: Float[Tensor, "devices ..."]) -> Float[Tensor, "agreeing ..."]:
        """Return the values of those who agree on a scale, as long as they report them."""
        if self.reports is None:
            return values
        part = self.reports > 0
        factors = self.reports[part].to(values).view(-1, *[1] * (values.ndim - 1))
        return values[part.to(values.device)] * factors

    def louder(self, amplitude: float) -> "AtDevices":
        """Return the same for devices that send everything louder, or more quietly, by one factor."""
        return replace(
            self,
            snr=None if self.snr is None else self.snr * amplitude**2,
            over_noise=None if self.over_noise is None else self.over_noise * amplitude,
        )

    def speaking(self, num_slots: int, uses: int) -> Bool[Tensor, "devices slots"] | None:
        """Return who sends in which slot; None: everybody in all of them."""
        if self.scale is None or bool((self.scale != 0).all()):
            return None
        return (self.scale != 0)[:, slot_blocks(num_slots, uses, self.block_uses)]


@runtime_checkable
class PlaceGains(Protocol):
    """Mean gains by place, equal where they are the same."""

    def arriving(self, positions: Float[Tensor, "places 2"]) -> Float[Tensor, "places access_points"]:
        """Return the mean power with which each access point hears a device at each place, behind power control."""
        ...


@dataclass(frozen=True)
class AtReceiver:
    """What the base station knows of the channel beside what it hears."""

    gains: Gains | None = None
    """As it believes them to be; None where it is told nothing, or all gains are one."""
    block_uses: int = 0
    """Channel uses of a coherence block, in which the same devices speak; 0: the whole round is one."""
    gain_model: GainModel = field(default_factory=GainModel)
    """The law of the gains, by which the link was planned; not those of the round."""
    layout: PlaceGains | None = None
    """Mean gains by place, by which the link was planned; None where places do not matter, or devices undo their gains."""
    knows_level: bool = False
    """Whether devices arrive at a level that depends on the round's gains."""
    num_active: float | None = None
    """How many devices send, as pilots of the scheme told; None: it has none."""
    noise_var: float | None = None
    """Noise variance of a channel use, as copies or pilots of the scheme told."""
    pilot_noise: tuple[float, float] | None = None
    """Noise variance by pilots, and its standard error, where the decoder estimates its own first."""

    @property
    def side_information(self) -> tuple[str, ...]:
        """What that is, in words."""
        if self.gains is not None:
            return ("every device's channel gain",)
        return ("the weakest device's gain, which sets the level of all",) if self.knows_level else ()

    def slot_blocks(self, num_slots: int, uses: int) -> list[slice]:
        """Return the slots of every block, in order."""
        if self.block_uses == 0 or num_slots == 0:
            return [slice(0, num_slots)]
        sizes = slot_blocks(num_slots, uses, self.block_uses).unique_consecutive(return_counts=True)[1].cumsum(0)
        ends = sizes.tolist()
        return [slice(first, end) for first, end in zip([0, *ends[:-1]], ends, strict=True)]


@dataclass(frozen=True)
class Offsets:
    """What makes devices' signals differ from their gain times the signal."""

    timing: Float[Tensor, " devices"]
    """How late each is, in complex channel uses."""
    frequency: Float[Tensor, " devices"]
    """How many turns a complex channel use its carrier is off, from each block's start."""


@dataclass(frozen=True)
class Csi:
    """The channel state of a round. Equal seeds give every scheme the same one."""

    at_devices: AtDevices
    gains: Gains | None = None
    """The true ones; None: one antenna, and all are one."""
    at_receiver: AtReceiver = field(default_factory=AtReceiver)
    level: Float[Tensor, " blocks"] | None = None
    """What power control lets signals arrive at, by which the receiver divides; None: one."""
    offsets: Offsets | None = None
    """None: every device is in time and in tune."""
    beams: Complex[Tensor, "blocks antennas"] | None = None
    """How the base station weighs its antennas before it listens; None: it listens to each."""

    @property
    def with_power(self) -> Gains | None:
        """The gains that a signal meets: the device's own scale, then the air."""
        scale = self.at_devices.scale
        if scale is None:
            return self.gains
        if self.gains is None:
            return Gains(scale[:, :, None], self.at_devices.block_uses)
        return Gains(scale[:, :, None] * self.gains.values, self.gains.block_uses)

    @property
    def behind_beams(self) -> Gains | None:
        """The gains with power that the base station listens to: of every antenna, or of the beam."""
        gains = self.with_power
        if gains is None or self.beams is None:
            return gains
        return Gains((gains.values * self.beams.conj()).sum(dim=2, keepdim=True), gains.block_uses)


@runtime_checkable
class Channel(Protocol):
    """Anything with these two methods is a channel."""

    def sound(self, num_devices: int, num_uses: int, *, rng: torch.Generator) -> Csi:
        """Draw the round's gains, and let power control decide what each device does.

        Args:
            num_devices: Devices that want to send in this round.
            num_uses: Channel uses of the round.
            rng: Where every random number of this call comes from.
        """
        ...

    def carry(self, signal: Signal, csi: Csi, *, rng: torch.Generator) -> Any:
        """Return what the base station's antennas hear: [antennas, slots, uses], real or complex.

        Args:
            signal: What the devices send.
            csi: The round's channel state, from `sound`.
            rng: Where every random number of this call comes from.
        """
        ...


@dataclass(frozen=True)
class ChannelFacts:
    """What a link must know of its channel before the first round; the attribute `facts` of a channel tells it."""

    snr_reference: SnrReference = "round"
    block_uses: int = 0
    """Channel uses of a coherence block, where gains differ from block to block; 0: gains of one."""
    access_points: int = 1
    """Places over which the base station's antennas are spread."""
    in_phase: bool = True
    """Whether signals arrive in phase."""
    disturbed: bool = False
    """Whether more goes wrong than noise, so that its capacity is not known."""


def facts_of(channel: Any) -> ChannelFacts:  # Any: of the user's own perhaps
    """Return what a channel tells of itself; one that tells nothing is taken for white noise."""
    found = getattr(channel, "facts", None)
    return found if isinstance(found, ChannelFacts) else ChannelFacts()


def make_channel(settings: ChannelSettings, power: PowerSettings) -> Channel:
    """Build the channel that settings describe; power control is a part of it, because it decides what the air gets."""
    if isinstance(settings, BlockFadingSettings):
        from aircomp.channel.fading import Fading  # only the channel that is chosen is imported

        return Fading(settings, power)
    assert isinstance(settings, AwgnSettings)  # a group is always one of its alternatives
    # with gains of one there is nothing to control
    if settings.disturbance.is_set:
        from aircomp.channel.disturb import Disturbed

        return Disturbed(settings.snr_db, settings.snr_reference, settings.disturbance)
    from aircomp.channel.awgn import Awgn

    return Awgn(settings.snr_db, settings.snr_reference)


class Direct:
    """No radio: what was sent arrives as it is. For bounds that are told the truth."""

    def sound(self, num_devices: int, num_uses: int, *, rng: torch.Generator) -> Csi:
        """Let everybody speak."""
        return Csi(AtDevices(num_devices))

    def carry(self, signal: Signal, csi: Csi, *, rng: torch.Generator) -> Signal:
        """Hand the signal over."""
        return signal
