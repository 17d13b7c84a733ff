"""Every receiver by name, and the random-access codebook that each goes with."""

from typing import Any

from jaxtyping import Complex, Float
from torch import Tensor

from aircomp.common.checks import check_choice
from aircomp.common.packing import pack
from aircomp.common.settings import Settings
from aircomp.decode.blind import Blind, BlindSettings, Learned
from aircomp.decode.blind_net import BlindNetSettings
from aircomp.decode.covariance import Covariance, CovarianceSettings
from aircomp.decode.md_aircomp import MdAirComp, MdAirCompSettings
from aircomp.decode.receiver import Receiver
from aircomp.decode.semi_blind import SemiBlind, SemiBlindSettings
from aircomp.decode.widened import Widened, WidenedSettings
from aircomp.errors import ConfigError
from aircomp.layer.blind_net import BlindLayer
from aircomp.uplinks.decoders import drawn_codebook

RECEIVER_CSI = "receiver-csi"
"""The link whose base station learns channels from pilots: no receiver by itself, since its devices send something else."""

BLIND_NET = "blind-net"
"""The blind receiver that was trained, with a codebook of its own."""

COMPOSITE = "md-aircomp-plus"
"""The link whose base station combines its antennas by a pilot that all devices share."""

RECEIVER_CODEBOOK = {
    "widened": "low-coherence",
    "blind": "low-coherence",
    BLIND_NET: "layer",
    "semi-blind": "low-coherence",
    "covariance": "low-coherence",
    "md-aircomp": "bernoulli",
    RECEIVER_CSI: "low-coherence",
    COMPOSITE: "low-coherence",
}
"""The random-access codebook that each receiver is for; `layer` is the one it was trained with."""

PHASELESS = ("blind", BLIND_NET, "semi-blind", "covariance")
"""Those that need no phase reference."""

INFORMED = ("widened", "blind", BLIND_NET, "semi-blind")
"""Those that make use of what the base station knows of a slot beforehand."""

receiver_settings: dict[str, type[Settings]] = {
    "widened": WidenedSettings,
    "blind": BlindSettings,
    BLIND_NET: BlindNetSettings,
    "semi-blind": SemiBlindSettings,
    "covariance": CovarianceSettings,
    "md-aircomp": MdAirCompSettings,
}
"""The options of each."""


def receiver_names() -> list[str]:
    """Return the names that `make_receiver` knows."""
    return list(receiver_settings)


def make_receiver(
    name: str, codebook: Float[Tensor, "codewords uses"], settings: Any = None, learned: Learned | None = None
) -> Receiver:
    """Build a receiver for a random-access codebook of real uses, which go two at a time.

    Args:
        name: One of `receiver_names()`.
        codebook: One unit-norm codeword per row.
        settings: Of its class in `receiver_settings`; the usual ones if None.
        learned: The schedule of `blind-net`; the one of the package if None.

    Raises:
        ConfigError: If there is no such receiver, or a codeword has an odd number of uses.
    """
    check_choice("receiver", name, receiver_names())
    check_even(name, codebook)
    match name:
        case "widened":
            return Widened(pack(codebook), settings)
        case "blind-net":
            return _trained(pack(codebook), settings or BlindNetSettings(), learned or BlindLayer.load().net)
        case "semi-blind":
            return SemiBlind(pack(codebook), settings)
        case "covariance":
            return Covariance(pack(codebook), settings)
        case "md-aircomp":
            return MdAirComp(pack(codebook), settings)
        case _:
            return Blind(pack(codebook), settings)


def _trained(codebook: Complex[Tensor, "codewords uses"], settings: BlindNetSettings, learned: Learned) -> Receiver:
    blind = BlindSettings(agreement=settings.agreement)
    if settings.memory:
        return SemiBlind(codebook, SemiBlindSettings(blind=blind), learned)
    return Blind(codebook, blind, learned)


def receiver_codebook(
    name: str, num_codewords: int, codeword_length: int, *, seed: int
) -> Float[Tensor, "codewords uses"]:
    """Return the codebook that a receiver is for: drawn from a seed, or the trained one of the package."""
    kind = RECEIVER_CODEBOOK[name]
    if kind == "layer":
        return BlindLayer.load().codebook
    return drawn_codebook(kind, num_codewords, codeword_length, seed).clone()


def check_even(name: str, codebook: Float[Tensor, "codewords uses"]) -> None:
    """See that the uses of a codeword go two at a time.

    Raises:
        ConfigError: If they do not.
    """
    if codebook.shape[1] % 2:
        raise ConfigError(
            f"uplink.codeword_length = {codebook.shape[1]}: {name!r} takes two real uses for a complex one; make it even"
        )
