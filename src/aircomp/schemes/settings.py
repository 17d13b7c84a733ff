"""Settings of every scheme, and the registry of schemes by name.

No module here imports torch, so that flags are checked and help is shown at once. A scheme's class names its settings; the
registry reads that name from the text of the scheme's file. A scheme may also define its settings beside itself: it is then
imported when they are asked for.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from aircomp.common.registry import Registry
from aircomp.common.settings import Settings, Tagged, absolute
from aircomp.decoders.settings import (
    AmpDaSettings,
    BlindNetSettings,
    BlindSettings,
    CovarianceSettings,
    Estimate,
    GampSettings,
    MdAirCompSettings,
    NnlsSettings,
    PosteriorSettings,
    ReceiverCsiSettings,
    SemiBlindSettings,
    SideInformation,
    TumaSettings,
    WidenedSettings,
)
from aircomp.encode.settings import MOST_LEVELS, CodebookKind
from aircomp.layer.zoo import is_name
from aircomp.quantize.settings import FragmentSettings, QuantizeSettings


class SchemeSettings(Tagged):
    """What every scheme has; the alternatives are those of the registry."""

    TAG = "name"

    name: str = "ideal"
    """The scheme; `aircomp schemes` lists them."""

    @classmethod
    def alternatives(cls) -> Mapping[str, type[Tagged]]:
        """Return the settings of every scheme."""
        return SettingsByName()

    @classmethod
    def tags(cls) -> list[str]:
        """Return the schemes that have these settings."""
        return tags_of(cls)


class PlainSettings(SchemeSettings):
    """Of schemes with nothing to set."""


def _absolute(given: object) -> object:  # before validation: as a path, "./128x64" would be the name "128x64"
    return absolute(Path(given)) if isinstance(given, str | Path) and not is_name(given) else given


LayerPath = Annotated[Path | None, BeforeValidator(_absolute)]
"""A directory of something trained, or the name of a layer of the package; None: the package's."""


class SlotSettings(SchemeSettings):
    """Schemes that fill the slots of the digital link, so that all of them take the same channel uses for an update."""

    quantize: FragmentSettings = FragmentSettings()
    codeword_length: int = Field(default=64, ge=1, le=65_536)
    """Real channel uses of one slot (paper: l = 64)."""

    @property
    def fragment_length(self) -> int:
        """Parameters that the digital link puts into a slot."""
        return self.quantize.fragment_length


class PilotedSettings(SlotSettings):
    """Schemes that learn the number of devices from pilots."""

    pilots: int | None = Field(default=None, ge=1, le=10**6)
    """Slots in which every device sends the same known sequence, by which the base station counts devices. By default one
    slot in fifty, from 4 to 64; with fading at least one in every block."""
    interleave: bool = False
    """Whether parameters from all over the update share a slot, which lowers the peaks of the signal."""


SCHEMES: Registry[Any] = Registry("scheme", "aircomp.schemes", reads="settings_class")
"""Any: classes derived from `Scheme`, which needs torch."""


def scheme_names() -> list[str]:
    """Return the names that `make_scheme` knows."""
    return SCHEMES.names()


class SettingsByName(Mapping[str, type[Tagged]]):
    """The settings of every scheme by its name; only a scheme whose settings stand beside it is imported for them."""

    def __getitem__(self, name: str) -> type[Tagged]:
        """Return the settings' class."""
        if name not in self:
            raise KeyError(name)
        written = globals().get(SCHEMES.word(name) or "")
        return written if written is not None and name not in SCHEMES.loaded else SCHEMES[name].settings_class

    def __contains__(self, name: object) -> bool:
        """Tell whether there is such a scheme."""
        return name in SCHEMES.loaded or name in SCHEMES.entries

    def __iter__(self) -> Iterator[str]:
        """Go through the names."""
        return iter(SCHEMES.names())

    def __len__(self) -> int:
        """Return how many schemes there are."""
        return len(SCHEMES.names())


def tags_of(settings: type[Tagged]) -> list[str]:
    """Return the schemes that have these settings."""
    loaded = SCHEMES.loaded
    return [
        name
        for name in SCHEMES.names()
        if (loaded[name].settings_class is settings if name in loaded else SCHEMES.word(name) == settings.__name__)
    ]


NO_PEAK = 1e12
"""A limit that no slot reaches, not even if all energy of ten thousand devices and ten million slots were in one."""


class UncodedSettings(PilotedSettings):
    """Options of analog transmission."""

    estimate: Literal["unbiased", "lmmse"] = "unbiased"
    """unbiased: the received mean is taken as it is. lmmse: each layer is shrunk by its share of noise."""
    peak: float = Field(default=NO_PEAK, ge=1, le=1e12)
    """The most energy of a device in a slot, where the mean is one; no limit by default."""


class AnalogSettings(UncodedSettings):
    """Options of analog transmission with a gain for every layer."""

    gains: Literal["layer", "equal"] = "layer"
    """layer: layers with small updates are sent louder. equal: all layers have the same gain."""


class RefinedSettings(PilotedSettings):
    """Options of refined analog transmission."""


class ADsgdSettings(PilotedSettings):
    """Options of A-DSGD."""

    keep: float = Field(default=0.5, gt=0, le=1)
    """How many parameters of a block a device keeps, over the number of its sums."""


class LearnedAnalogSettings(SchemeSettings):
    """Which code, and how long a round is."""

    quantize: FragmentSettings = FragmentSettings()
    pilots: int | None = Field(default=None, ge=1, le=10**6)
    """Slots in which every device sends the same known sequence, by which the base station counts devices."""
    layer: LayerPath = None
    """Directory of a trained analog code; by default the package's."""


class NomographicUplinkSettings(SlotSettings):
    """Options of nomographic networks."""

    clip: float = Field(default=2.5, gt=0, le=100)
    """Parameters are clipped at so many times the root mean square of their layer in the base station's own update."""
    layer: LayerPath = None
    """Directory of trained networks; by default the package's."""


class WholeNumbersSettings(PilotedSettings):
    """Options of schemes that send whole numbers."""

    clip: float = Field(default=2.5, gt=0, le=100)
    """Parameters are clipped at so many times the root mean square of their layer in the base station's own update."""
    estimate: Estimate = "mean"
    """How a sum is estimated: its posterior mean, its most probable value (map), the nearest one (ml), linearly (lmmse)."""


class BitSlicingSettings(WholeNumbersSettings):
    """Options of bit-slicing."""

    base: int = Field(default=4, ge=2, le=256)
    """How many values a slice has; 4 are two bits."""
    number: int = Field(default=3, ge=1, le=16)
    """How many slices a parameter has."""
    protect: bool = True
    """Whether slices of high significance are sent louder, by the noise of the last round."""


class ComplementSettings(WholeNumbersSettings):
    """Options of complement coded modulation."""

    bits: int = Field(default=3, ge=1, le=16)
    """How many bits a parameter has; each takes a channel use."""


class SumCompSettings(WholeNumbersSettings):
    """Options of SumComp."""

    in_phase: int = Field(default=4, ge=2, le=64)
    """Points along the in-phase axis."""
    quadrature: int = Field(default=4, ge=1, le=64)
    """Points along the quadrature axis; 1 is PAM."""


class ChannelCompSettings(PilotedSettings):
    """Options of ChannelComp."""

    levels: int = Field(default=3, ge=2, le=MOST_LEVELS)
    """How many levels a parameter is rounded to; 2 levels, and any number for the mean, take one channel use, others two."""
    devices: int = Field(default=16, ge=1, le=64)
    """The most devices that send at once; more levels allow fewer of them, but for the mean: 4 at most 16, 5 at most 10, 6 at
    most 7."""
    function: Literal["type", "mean", "median", "maximum"] = "type"
    """What the sum of points is to tell: how many devices have each level, or one function of the levels."""
    clip: float = Field(default=1.5, gt=0, le=100)
    """The outermost levels, over the root mean square of their layer in the base station's own update."""


class TbmaLatticeSettings(PilotedSettings):
    """Options of type-based multiple access."""

    levels: int = Field(default=3, ge=2, le=64)
    """How many levels a parameter is rounded to. Each takes one channel use; where the round has fewer, it carries some of
    the parameters."""
    clip: float = Field(default=1.5, gt=0, le=100)
    """The outermost levels, over the root mean square of their layer in the base station's own update."""


class NoiseAwareSettings(ChannelCompSettings):
    """Options of noise-aware ChannelComp."""

    devices: int = Field(default=16, ge=1, le=64)
    """The most devices that send at once; more levels allow fewer: 3 at most 43, 4 at most 16, 5 at most 10, 6 at most 7."""
    function: Literal["type", "mean", "median", "maximum"] = "mean"
    """What the sum of points is to tell: how many devices have each level, or one function of the levels."""


class ComputationRateSettings(SlotSettings):
    """Options of compute-and-forward."""

    clip: float = Field(default=2.5, gt=0, le=100)
    """Parameters are clipped at so many times the root mean square of their layer in the base station's own update."""


LARGEST_PRIME = 61
"""Belief propagation takes time as its square."""


class LatticeLdpcSettings(PilotedSettings):
    """Options of lattice codes."""

    devices: int = Field(default=16, ge=1, le=LARGEST_PRIME - 1)
    """The most devices that send at once: their sum must not wrap, so fewer devices need a smaller field."""


class VoteSettings(SlotSettings):
    """How long the step after a vote is."""

    rate: float = Field(default=1.0, gt=0, le=1e6)
    """Step of every parameter, over the mean absolute value of the base station's own update."""
    decay: float = Field(default=1.0, gt=0, le=1)
    """Factor of the rate from round to round; the base station's own updates shrink with training, too."""


class OfdmaSettings(SlotSettings):
    """Options of devices with subcarriers of their own."""

    quantize: QuantizeSettings = QuantizeSettings()
    gap_db: float = Field(default=0.0, ge=0, le=20)
    """How far the code stays behind the channel's capacity, in dB; 0 is a bound, good codes have 1 to 3."""
    carriers: int = Field(default=256, ge=1, le=65_536)
    """Subcarriers of a symbol in time, of all devices together."""
    peak: float = Field(default=NO_PEAK, ge=1, le=1e12)
    """The most power of a device at any time, where the mean over the round is one; no limit by default."""


class TurnsSettings(SlotSettings):
    """Options of devices that take turns."""

    gap_db: float = Field(default=0.0, ge=0, le=20)
    """How far the code stays behind the channel's capacity, in dB; 0 is a bound, good codes have 1 to 3."""
    peak: float = Field(default=NO_PEAK, ge=1, le=1e12)
    """The most energy of a device in a slot, where the mean over the round is one; no limit by default."""


class TurnsVqSettings(TurnsSettings):
    """Options of devices that send indices of a codebook in turns."""

    quantize: QuantizeSettings = QuantizeSettings()


class CapacitySettings(SlotSettings):
    """Options of the bound by all devices' rate."""

    quantize: QuantizeSettings = QuantizeSettings()


class TdmaCodedSettings(SlotSettings):
    """How the quantisation codebook is built."""

    quantize: QuantizeSettings = QuantizeSettings()


class QuantizedSettings(SchemeSettings):
    """What quantises, and how long a slot is."""

    quantize: QuantizeSettings = QuantizeSettings()
    codeword_length: int = Field(default=64, ge=1, le=65_536)
    """Real channel uses of one slot (paper: l = 64); two-bases needs a power of two."""

    @property
    def fragment_length(self) -> int:
        """Parameters of a slot."""
        return self.quantize.fragment_length


class DigitalSettings(QuantizedSettings):
    """What every scheme on the digital link has."""

    codebook: Literal["auto", "layer", CodebookKind] = "auto"
    """Kind of random-access codebook; auto: what the decoder was designed for; layer: a trained one."""
    layer: LayerPath = None
    """Directory of a trained communication layer, or the name of one of the package (`aircomp layers`; `./128x64` is a
    directory); by default the package's, of the sizes set here."""


class InformedSettings(DigitalSettings):
    """Schemes whose decoder makes use of what the base station knows of a slot beforehand."""

    side_information: SideInformation = "both"
    """What the decoder is told of each slot beforehand: its layer, the base station's own codeword, both or none (paper)."""


class RepeatedSettings(DigitalSettings):
    """Schemes whose slots can be sent several times."""

    repeat: Literal["auto"] | Annotated[int, Field(ge=1, le=10**6)] = 1
    """How often a slot is sent. The base station requests that many times fewer slots. 1 is the paper's. auto chooses by the
    estimated SNR, so that slots left out and slots decoded wrongly cost the least energy together."""


class CountingSettings(RepeatedSettings):
    """Schemes with a decoder for white noise."""

    pilots: int | None = Field(default=None, ge=0, le=10**6)
    """Slots in which every device sends the same known sequence, by which the base station counts devices. By default none
    with codewords of equal energy, and otherwise one slot in fifty, from 4 to 64."""


class UnequalSettings(CountingSettings, InformedSettings):
    """Schemes whose decoder takes codewords of unequal energy."""

    energy: Literal["equal", "matched"] = "equal"
    """Energy of the codewords: the same for all (paper), or matched to what each stands for and to the noise of the last
    round, one on average."""
    peak: float | None = Field(default=None, ge=1, le=1e6)
    """The most energy of a codeword with matched energies, where the mean is one; by default 36."""
    rate: Literal["fixed", "auto"] = "fixed"
    """Sizes of fragments and codewords: fixed as set (paper), or auto: a quarter of them where the SNR is high enough, at the
    same channel uses per parameter."""


class OwnDecoderSettings(CountingSettings, InformedSettings):
    """The digital link with a decoder of the user's own."""


class GampLinkSettings(UnequalSettings):
    """Options of GAMP on the digital link."""

    decoder: GampSettings = GampSettings()


class PosteriorLinkSettings(UnequalSettings):
    """Options of the sampler on the digital link."""

    decoder: PosteriorSettings = PosteriorSettings()


class AmpDaLinkSettings(CountingSettings):
    """Options of AMP-DA on the digital link."""

    decoder: AmpDaSettings = AmpDaSettings()


class OmpLinkSettings(CountingSettings):
    """Options of matching pursuit on the digital link."""


class NnlsLinkSettings(CountingSettings):
    """Options of least squares on the digital link."""

    decoder: NnlsSettings = NnlsSettings()


class AmpDaNetLinkSettings(CountingSettings):
    """Options of the paper's network on the digital link."""


class GampNetLinkSettings(CountingSettings, InformedSettings):
    """Options of our network on the digital link."""


class JointCodeLinkSettings(SchemeSettings):
    """Options of the joint code."""

    quantize: QuantizeSettings = QuantizeSettings()
    codeword_length: int = Field(default=64, ge=1, le=65_536)
    """Real channel uses of one slot, a power of two."""
    layer: LayerPath = None
    """Directory of a trained joint code; by default the package's."""
    side_information: SideInformation = "both"
    """What the decoder is told of each slot beforehand: its layer, the base station's own codeword, both or none."""
    decoder: GampSettings = GampSettings()
    peak: float | None = Field(default=None, ge=1, le=1e6)
    """The most energy of a codeword, where the mean is one; by default 36."""
    repeat: Literal["auto"] | Annotated[int, Field(ge=1, le=10**6)] = 1
    """How often a slot is sent. The base station requests that many times fewer slots."""
    pilots: int | None = Field(default=None, ge=0, le=10**6)
    """Slots in which every device sends the same known sequence; by default one in fifty, from 4 to 64."""


class ReceiverSettings(RepeatedSettings):
    """Schemes with a receiver for fading."""

    decoder: Settings


class WidenedLinkSettings(ReceiverSettings, InformedSettings):
    """Options of the widened likelihood on the digital link."""

    decoder: WidenedSettings = WidenedSettings()


class BlindLinkSettings(ReceiverSettings, InformedSettings):
    """Options of the blind receiver."""

    decoder: BlindSettings = BlindSettings()


class SemiBlindLinkSettings(ReceiverSettings, InformedSettings):
    """Options of the semi-blind receiver."""

    decoder: SemiBlindSettings = SemiBlindSettings()


class BlindNetLinkSettings(ReceiverSettings, InformedSettings):
    """Options of the trained blind receiver."""

    decoder: BlindNetSettings = BlindNetSettings()


class CovarianceLinkSettings(ReceiverSettings):
    """Options of the covariance receiver on the digital link."""

    decoder: CovarianceSettings = CovarianceSettings()


class MdAirCompLinkSettings(ReceiverSettings):
    """Options of MD-AirComp's receiver on the digital link."""

    decoder: MdAirCompSettings = MdAirCompSettings()


class MdAirCompPlusSettings(DigitalSettings):
    """Options of the composite pilot on the digital link."""


class ReceiverCsiLinkSettings(DigitalSettings):
    """Options of receiver CSI on the digital link."""

    decoder: ReceiverCsiSettings = ReceiverCsiSettings()


class TumaLinkSettings(RepeatedSettings, InformedSettings):
    """Options of TUMA on the digital link."""

    decoder: TumaSettings = TumaSettings()


class TumaSelfLinkSettings(TumaLinkSettings):
    """Options of TUMA with devices that select themselves."""

    target: int = Field(default=5, ge=1, le=100_000)
    """How many devices shall send in a round."""
