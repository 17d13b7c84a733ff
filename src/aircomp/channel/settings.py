"""Settings of the channel: which one, how noisy, what fades, and how devices choose their power."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from aircomp.common.radio import SnrReference
from aircomp.common.settings import Settings, Tagged, absolute

SLOT_USES = 64
"""Real channel uses of the slots in which blocks and bursts are counted, however long a scheme's own slots are."""
LOWEST_SNR_DB, HIGHEST_SNR_DB = -100.0, 200.0
"""What settings take: float32 tells noise from a signal over 140 dB, and powers of either stay far from its limits."""


StandardModel = Literal["tdl-a", "tdl-b", "tdl-c", "tdl-d", "tdl-e", "cdl-a", "cdl-b", "cdl-c", "cdl-d", "cdl-e"]
"""The models that Sionna draws."""


DIRECT = {"d": 7.915, "e": 8.454}
"""Power of the direct path over that of all others, by the last letter of a model; none in the other models. The K-factors of
13.3 dB and 22 dB that the standard names are those of the first tap alone; on a subcarrier all taps add up."""


def direct_power(model: str) -> float:
    """Return the Rician factor of a standard model.

    >>> direct_power("tdl-a"), round(direct_power("cdl-d"), 1)
    (0.0, 7.9)
    """
    return DIRECT.get(model[-1], 0.0)


class ErrorSettings(Settings):
    """What devices do not know, or cannot do exactly; nothing by default."""

    csi_correlation: float = Field(default=1.0, ge=0, le=1)
    """How well devices know their gain h; 1 is exactly. They believe that it is ρh + √(1 − ρ²)e, with a random e."""
    phase_deg: float = Field(default=0.0, ge=0, le=360)
    """Standard deviation of a device's phase error in each coherence block, in degrees."""
    power_db: float = Field(default=0.0, ge=0, le=20)
    """Standard deviation of a device's error of transmit power in each round, in decibels; its mean power is kept."""
    timing: float = Field(default=0.0, ge=0, lt=1)
    """How late a device can be, as a part δ of a complex channel use: it sends (1 − δ)c[m] + δc[m−1]."""
    frequency: float = Field(default=0.0, ge=0, le=0.5)
    """How far a device's carrier can be off, in turns per complex channel use; it is right at the start of each block. 10 Hz
    at a million uses a second are 1e-5."""


class ChannelSettings(Tagged):
    """What lies between the devices and the base station."""

    kind: str = "awgn"
    """awgn: white Gaussian noise and gains of one, the paper's. fading: complex gains that stay for a block of slots,
    Rayleigh or Rician. standard: such gains by the models of 3GPP TR 38.901, with the extra `sionna`. recorded: gains from
    a file."""
    snr_db: float = Field(default=10.0, ge=LOWEST_SNR_DB, le=HIGHEST_SNR_DB)
    """Signal-to-noise ratio in decibels; the paper uses 0, 3, 5, 10, 15 and 20."""
    snr_reference: SnrReference = "round"
    """What the SNR refers to: the mean received power of the `round`, that of each `slot`, or the `transmit` power."""


class DisturbanceSettings(Settings):
    """What else can go wrong on white noise; nothing by default. `channel/disturb.py` has the formulas."""

    clip_db: float | None = Field(default=None, ge=0, le=100)
    """What a device's amplifier lets pass at most, over its mean power, in decibels; no limit by default."""
    burst_share: float = Field(default=0.0, ge=0, le=1)
    """Share of slots of 64 real channel uses in which the noise is louder: interference, or a jammer that pulses."""
    burst_db: float = Field(default=20.0, ge=0, le=100)
    """How much stronger the noise of a burst is, in decibels; `snr_db` is that of the other slots."""
    tail: int | None = Field(default=None, ge=1, le=1000)
    """Degrees of freedom of Student's distribution, which the noise then has with the scale that `snr_db` tells: 1 is
    Cauchy's, many are Gaussian. Both parts of a complex use share it."""
    lost: float = Field(default=0.0, ge=0, le=1)
    """Share of slots of 64 real channel uses of which the base station hears nothing; nobody tells it which."""
    adc_bits: int | None = Field(default=None, ge=1, le=8)
    """Bits that the base station's converter has for a real channel use; exact by default."""
    attackers: float = Field(default=0.0, ge=0, le=1)
    """Share of devices that send louder than agreed."""
    attack_db: float = Field(default=10.0, ge=-100, le=100)
    """How much more power they send with, in decibels."""

    @property
    def is_set(self) -> bool:
        """Whether anything goes wrong."""
        limits = (self.clip_db, self.tail, self.adc_bits)
        return any(each is not None for each in limits) or any((self.burst_share, self.lost, self.attackers))


class AwgnSettings(ChannelSettings):
    """White Gaussian noise, and gains of one."""

    kind: Literal["awgn"] = "awgn"
    disturbance: DisturbanceSettings = DisturbanceSettings()


class BlockFadingSettings(ChannelSettings):
    """Complex gains that stay for a block of slots: what all such channels have."""

    antennas: int = Field(default=1, ge=1, le=1024)
    """Antennas of the base station; a device has another gain to each of them."""
    block_slots: int = Field(default=256, ge=1, le=10**9)
    """Slots of 64 real channel uses for which gains stay as they are; a round may end before a block does."""
    errors: ErrorSettings = ErrorSettings()

    @property
    def exponent(self) -> float:
        """Exponent by which the mean power of a device falls with its distance; 0 where distance does not matter."""
        return 0.0

    @property
    def places(self) -> int:
        """Places over which the antennas are spread."""
        return 1

    @property
    def direct(self) -> float:
        """Power of the direct path over that of the scattered ones."""
        return 0.0

    @property
    def neighbours(self) -> float:
        """Correlation of the gains to neighbouring antennas, as the receiver takes it."""
        return 0.0


class DrawnSettings(BlockFadingSettings):
    """Gains that are drawn, for devices at places that are drawn."""

    path_loss: float = Field(default=0.0, ge=0, le=10)
    """Exponent by which power falls with distance, for devices spread over a disc; at its edge the gain is one. 3.76 is
    usual in a city; with 0 distance does not matter."""

    @property
    def exponent(self) -> float:
        """Exponent by which the mean power of a device falls with its distance."""
        return self.path_loss


class FadingSettings(DrawnSettings):
    """Rayleigh or Rician fading, on antennas in one place or in several."""

    kind: Literal["fading"] = "fading"
    access_points: int = Field(default=1, ge=1, le=1024)
    """Places over which the antennas are spread evenly; their number divides that of the antennas. One is the middle of the
    disc. With path loss, a device has another mean gain to each."""
    rician_factor: float = Field(default=0.0, ge=0, le=1e6)
    """Power of the direct path over that of the scattered ones; 0 is Rayleigh fading."""
    correlation: float = Field(default=0.0, ge=0, lt=1)
    """Correlation r of the gains to neighbouring antennas; that of the next but one is r²."""

    @property
    def places(self) -> int:
        """Places over which the antennas are spread."""
        return self.access_points

    @property
    def direct(self) -> float:
        """Power of the direct path over that of the scattered ones."""
        return self.rician_factor

    @property
    def neighbours(self) -> float:
        """Correlation of the gains to neighbouring antennas, as the receiver takes it."""
        return self.correlation


class StandardSettings(DrawnSettings):
    """The models of 3GPP TR 38.901: each block on a subcarrier of its own."""

    kind: Literal["standard"] = "standard"
    model: StandardModel = "tdl-a"
    """Tapped delay lines (TDL) or clustered ones (CDL); A to C without a direct path, D and E with one."""
    delay_ns: float = Field(default=100.0, ge=0, le=1e4)
    """Delay spread, in nanoseconds; 100 is usual in a city."""
    step_khz: float = Field(default=180.0, ge=1e-3, le=1e6)
    """Frequency from the subcarrier of a block to that of the next, in kilohertz; 180 is a resource block of LTE."""

    @property
    def direct(self) -> float:
        """Power of the direct path over that of the scattered ones."""
        return direct_power(self.model)


class RecordedSettings(BlockFadingSettings):
    """Gains from a file, say of a ray tracer: the devices of a round are users of the file, drawn at random."""

    kind: Literal["recorded"] = "recorded"
    gains: Path = Field(default=Path("gains.npy"), validate_default=True)
    """A .npy file of complex numbers [users, blocks, antennas], or [users, antennas] for gains that never change. The mean
    power over the file is taken for one. Where a base station has more antennas than `antennas`, the first ones count."""

    _absolute = field_validator("gains")(absolute)

    @model_validator(mode="after")
    def _of_the_file(self) -> "RecordedSettings":
        if self.errors.csi_correlation < 1:
            raise ValueError(
                "errors.csi_correlation was given with gains from a file; leave it out, because devices know those exactly"
            )
        return self


COHERENT = ("inversion", "phase", "common", "beamforming")
"""The controls that let signals arrive in phase; they need to know the gain."""


SILENCING = ("inversion", "beamforming")
"""The controls under which devices are silent in some blocks."""


USUAL_THRESHOLD = 0.1


class PowerSettings(Tagged):
    """How devices choose their transmit power."""

    TAG: ClassVar[str] = "control"

    control: str = "none"
    """none: every device sends at its nominal mean power. inversion: it undoes its gain, and is silent in blocks where
    that is weak. phase: it undoes the phase alone. statistical: it undoes the mean gain alone. common: all devices arrive
    as the weakest one does. beamforming: so they do behind weights of the antennas, by which the base station, which then
    knows all gains, hears the weakest best."""
    cap: bool = False
    """What is equal for all schemes. false: the mean energy over devices and rounds. true: the most that a device spends in a
    round; all devices send louder or more quietly by one factor, which the base station knows."""


class PlainControl(PowerSettings):
    """Controls that leave nothing to choose."""

    control: Literal["none", "phase", "statistical", "common"] = "none"


class Inversion(PowerSettings):
    """Devices undo their gain, but where it is weak."""

    control: Literal["inversion"] = "inversion"
    threshold: float | None = Field(default=None, ge=1e-12, le=10)
    """A device is silent where its gain is below this share of its mean; 0.1 if neither this nor a peak is given."""
    peak_db: float | None = Field(default=None, ge=0, le=100)
    """The largest power over the mean one, in decibels; the threshold is then the smallest that keeps it."""

    @model_validator(mode="after")
    def _one_of_both(self) -> "Inversion":
        if self.threshold is not None and self.peak_db is not None:
            raise ValueError(
                "threshold and peak_db were given; expected one of them, because the peak decides the threshold"
            )
        return self


class Beamforming(PowerSettings):
    """All devices arrive as the weakest one, behind weights of the antennas."""

    control: Literal["beamforming"] = "beamforming"
    threshold: float = Field(default=USUAL_THRESHOLD, ge=1e-12, le=10)
    """Devices are left out until the weakest gain behind the beam has this power."""
