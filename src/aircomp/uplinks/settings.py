"""Settings of the uplink: which scheme, and the parts of the digital ones."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from aircomp.common.settings import Except, Needs, NeedsTable, Settings, absolute, needs
from aircomp.decode.amp_da import AmpDaSettings
from aircomp.decode.blind import BlindSettings
from aircomp.decode.blind_net import BlindNetSettings
from aircomp.decode.covariance import CovarianceSettings
from aircomp.decode.gamp import GampSettings
from aircomp.decode.learnt_channels import ReceiverCsiSettings
from aircomp.decode.md_aircomp import MdAirCompSettings
from aircomp.decode.posterior import PosteriorSettings
from aircomp.decode.semi_blind import SemiBlindSettings
from aircomp.decode.side import SideInformation
from aircomp.decode.simple import NnlsSettings
from aircomp.decode.tuma import NAME as TUMA
from aircomp.decode.tuma import TumaSettings
from aircomp.decode.widened import WidenedSettings
from aircomp.encode.codebook import CodebookKind
from aircomp.layer.joint_code import NAME as JOINT_NET
from aircomp.layer.zoo import is_name
from aircomp.quantize.codebook import QuantizeSettings
from aircomp.uplinks.a_dsgd import KINDS as PROJECTED
from aircomp.uplinks.a_dsgd import ADsgdSettings
from aircomp.uplinks.analog import KINDS as IN_PHASE
from aircomp.uplinks.analog import AnalogSettings
from aircomp.uplinks.blind_analog import NAME as BLIND_ANALOG
from aircomp.uplinks.channelcomp import NAME as CHANNELCOMP
from aircomp.uplinks.channelcomp import ChannelCompSettings
from aircomp.uplinks.hybrid import NAME as HYBRID
from aircomp.uplinks.lattice import NAME as LATTICE
from aircomp.uplinks.learned_analog import NAME as LEARNED_ANALOG
from aircomp.uplinks.orthogonal import JOINT, TdmaSettings
from aircomp.uplinks.orthogonal import KINDS as TDMA
from aircomp.uplinks.positional import KINDS as DIGITS
from aircomp.uplinks.positional import DigitsSettings
from aircomp.uplinks.receivers import BLIND_NET, COMPOSITE, RECEIVER_CSI, receiver_names
from aircomp.uplinks.vote import KINDS as VOTE
from aircomp.uplinks.vote import VoteSettings

ANALOG = (*IN_PHASE, BLIND_ANALOG)
PILOTED = (*ANALOG, *DIGITS, *PROJECTED, "reed", CHANNELCOMP, LEARNED_ANALOG, HYBRID)
"""The schemes that learn the number of devices from pilots."""
_SLOTS = needs("name", Except("ideal"))
_UNCODED = ("ideal", *PILOTED, *TDMA, "tdma-coded", *VOTE, JOINT, LATTICE)
_DIGITAL = needs("name", Except(*_UNCODED))

TRAINED = ("amp-da-net", "gamp-net", LEARNED_ANALOG, BLIND_NET, JOINT_NET)
"""The schemes that take a layer."""
UNEQUAL = ("gamp", "posterior")
"""The decoders for codewords that differ in energy."""


class UplinkSettings(Settings):
    """How updates reach the base station."""

    NEEDS: ClassVar[NeedsTable] = {
        "codebook": _DIGITAL + needs("name", Except(JOINT_NET)),
        "layer": (
            Needs({"name": TRAINED, "codebook": ("layer",)}, refused=True),
            *needs("name", Except(*(name for name in _UNCODED if name != LEARNED_ANALOG))),
        ),
        "codeword_length": needs("name", Except("ideal", LEARNED_ANALOG)) + needs("layer", None),
        "energy": needs("name", *UNEQUAL, refused=True),
        "peak": (Needs({"energy": ("matched",), "name": (*ANALOG, *TDMA, JOINT_NET)}),),
        "rate": needs("name", *UNEQUAL, refused=True)
        + needs("codebook", "auto", "two-bases", "low-coherence-real", refused=True),
        "pilots": needs(
            "name",
            Except(
                "ideal",
                "perfect",
                *TDMA,
                "tdma-coded",
                *VOTE,
                JOINT,
                LATTICE,
                RECEIVER_CSI,
                COMPOSITE,
                *receiver_names(),
                TUMA,
            ),
        ),
        "repeat": _DIGITAL + needs("name", Except(RECEIVER_CSI, COMPOSITE), refused=True),
        "quantize": _SLOTS,
        "quantize.num_codewords": needs("name", Except("ideal", *PILOTED, *TDMA[1:], *VOTE, LATTICE)),
        "amp_da": needs("name", "amp-da"),
        "gamp": needs("name", "gamp", JOINT_NET),
        "posterior": needs("name", "posterior"),
        "nnls": needs("name", "nnls"),
        "analog": needs("name", *ANALOG),
        "analog.gains": needs("name", "analog"),
        "tdma": needs("name", *TDMA),
        "vote": needs("name", *VOTE),
        "digits": needs("name", *DIGITS, LATTICE),
        **dict.fromkeys(("digits.base", "digits.number", "digits.estimate"), needs("name", *DIGITS)),
        "a_dsgd": needs("name", *PROJECTED),
        "channelcomp": needs("name", CHANNELCOMP),
        "widened": needs("name", "widened"),
        "blind": needs("name", "blind"),
        "blind_net": needs("name", BLIND_NET),
        "semi_blind": needs("name", "semi-blind"),
        "covariance": needs("name", "covariance"),
        "md_aircomp": needs("name", "md-aircomp"),
        "receiver_csi": needs("name", RECEIVER_CSI),
        "tuma": needs("name", TUMA),
    }

    name: str = "ideal"
    """The scheme; `aircomp schemes` lists them."""
    codebook: Literal["auto", "layer", CodebookKind] = "auto"
    """Kind of random-access codebook; auto: what each decoder was designed for; layer: a trained one."""
    layer: Path | None = None
    """Directory of a trained communication layer, analog code, joint code or blind receiver, or the name of a layer of the
    package (`aircomp layers`; `./128x64` is a directory); by default the package's, of the sizes set here."""
    codeword_length: int = Field(default=64, ge=1)
    """Real channel uses of one slot (paper: l = 64); two-bases needs a power of two."""
    energy: Literal["equal", "matched"] = "equal"
    """Energy of the codewords: the same for all (paper), or matched to what each stands for and to the noise of the last
    round, one on average; for gamp and posterior."""
    rate: Literal["fixed", "auto"] = "fixed"
    """Sizes of fragments and codewords: fixed as set (paper), or auto: a quarter of them where the SNR is high enough, at the
    same channel uses per parameter; for gamp and posterior."""
    peak: float | None = Field(default=None, ge=1, le=1e6)
    """The most energy of a device in a slot, where the mean is one. By default 36 with matched energies and joint-net. Analog
    schemes and devices that take turns have no limit by default."""
    pilots: int | None = Field(default=None, ge=0)
    """Slots in which every device sends the same known sequence, which tells the number of devices. By default none with
    codewords of equal energy, and otherwise one slot in fifty, from 4 to 64; with fading at least one in every block."""
    repeat: Literal["auto"] | Annotated[int, Field(ge=1)] = 1
    """How often a slot is sent; so many times fewer slots are asked for. 1 is the paper's. auto chooses: it weighs the energy
    of the slots that are not asked for against the slots that would be decoded wrongly at the estimated SNR."""
    side_information: SideInformation = "both"
    """What the decoder is told of each slot beforehand: its layer, the base station's own codeword, both or none (paper)."""
    quantize: QuantizeSettings = QuantizeSettings()
    amp_da: AmpDaSettings = AmpDaSettings()
    gamp: GampSettings = GampSettings()
    posterior: PosteriorSettings = PosteriorSettings()
    nnls: NnlsSettings = NnlsSettings()
    analog: AnalogSettings = AnalogSettings()
    tdma: TdmaSettings = TdmaSettings()
    vote: VoteSettings = VoteSettings()
    digits: DigitsSettings = DigitsSettings()
    a_dsgd: ADsgdSettings = ADsgdSettings()
    channelcomp: ChannelCompSettings = ChannelCompSettings()
    widened: WidenedSettings = WidenedSettings()
    blind: BlindSettings = BlindSettings()
    blind_net: BlindNetSettings = BlindNetSettings()
    semi_blind: SemiBlindSettings = SemiBlindSettings()
    covariance: CovarianceSettings = CovarianceSettings()
    md_aircomp: MdAirCompSettings = MdAirCompSettings()
    receiver_csi: ReceiverCsiSettings = ReceiverCsiSettings()
    tuma: TumaSettings = TumaSettings()

    @field_validator("layer", mode="before")  # before: as a path, "./128x64" would be the name "128x64"
    @classmethod
    def _absolute(cls, given: object) -> object:
        return absolute(Path(given)) if isinstance(given, str | Path) and not is_name(given) else given

    def of_decoder(self, name: str) -> Settings | None:
        """Return the options of a decoder, if it has any."""
        options = {"amp-da": self.amp_da, "gamp": self.gamp, "posterior": self.posterior}
        options |= {JOINT_NET: self.gamp, "nnls": self.nnls, "widened": self.widened, "blind": self.blind}
        options |= {
            BLIND_NET: self.blind_net,
            "semi-blind": self.semi_blind,
            "covariance": self.covariance,
            "md-aircomp": self.md_aircomp,
        }
        return options.get(name)
