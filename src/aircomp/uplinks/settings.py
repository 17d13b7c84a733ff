"""Settings of the uplink: which scheme, and the parts of the digital ones."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from aircomp.common.settings import Except, Needs, NeedsTable, Settings, absolute, needs
from aircomp.decode.side import SideInformation
from aircomp.encode.codebook import CodebookKind
from aircomp.quantize.codebook import QuantizeSettings

_DIGITAL = needs("name", Except("ideal"))


class UplinkSettings(Settings):
    """How updates reach the base station."""

    NEEDS: ClassVar[NeedsTable] = {
        "codebook": _DIGITAL,
        "layer": (Needs({"name": ("amp-da-net",), "codebook": ("layer",)}, refused=True), *_DIGITAL),
        "codeword_length": needs("name", Except("ideal", "amp-da-net")) + needs("codebook", Except("layer")),
        "repeat": _DIGITAL,
        "quantize": _DIGITAL,
    }

    name: str = "ideal"
    """The scheme; `aircomp.uplink_names()` lists them."""
    codebook: Literal["auto", "layer", CodebookKind] = "auto"
    """Kind of random-access codebook; auto: what each decoder was designed for; layer: a trained one."""
    layer: Path | None = None
    """Directory of a trained communication layer; by default the one that comes with the package."""
    codeword_length: int = Field(default=64, ge=1)
    """Real channel uses of one slot (paper: l = 64); two-bases needs a power of two."""
    repeat: Literal["auto"] | Annotated[int, Field(ge=1)] = 1
    """Times that a slot is sent, of so many times fewer slots; 1 is the paper's. auto weighs what is then not asked for,
    by the base station's own energy, against what would be decoded wrongly at the estimated SNR."""
    side_information: SideInformation = "both"
    """What the decoder is told of each slot beforehand: its layer, the base station's own codeword, both or none (paper)."""
    quantize: QuantizeSettings = QuantizeSettings()

    _absolute = field_validator("layer")(absolute)
