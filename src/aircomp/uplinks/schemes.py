"""Every scheme by name: bounds, one for each decoder and each receiver on the digital link, and their rivals."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from aircomp.common.checks import check_choice, check_methods, check_number, check_type
from aircomp.decode.base import Decoder
from aircomp.decode.tuma import NAME as TUMA
from aircomp.encode.codebook import MOST_CODEWORDS
from aircomp.errors import ConfigError
from aircomp.layer.analog_code import AnalogCode
from aircomp.layer.blind_net import BlindLayer
from aircomp.layer.joint_code import NAME as JOINT_NET
from aircomp.layer.joint_code import JointLayer
from aircomp.uplinks.a_dsgd import KINDS as PROJECTED
from aircomp.uplinks.a_dsgd import ADsgdUplink
from aircomp.uplinks.analog import KINDS as ANALOG
from aircomp.uplinks.analog import NO_PEAK, AnalogUplink
from aircomp.uplinks.base import Uplink, UplinkContext
from aircomp.uplinks.blind_analog import NAME as BLIND_ANALOG
from aircomp.uplinks.blind_analog import BlindAnalogUplink
from aircomp.uplinks.block_pilots import BlockPilots, BlockPilotsUplink
from aircomp.uplinks.channelcomp import NAME as CHANNELCOMP
from aircomp.uplinks.channelcomp import ChannelCompUplink
from aircomp.uplinks.coded import CodedUplink
from aircomp.uplinks.composite import CompositePilot
from aircomp.uplinks.decoders import DecoderChoice, decoder_and_codebook, decoder_names
from aircomp.uplinks.digital import DigitalUplink
from aircomp.uplinks.hybrid import NAME as HYBRID
from aircomp.uplinks.hybrid import HybridUplink
from aircomp.uplinks.ideal import IdealUplink
from aircomp.uplinks.lattice import NAME as LATTICE
from aircomp.uplinks.lattice import LatticeUplink
from aircomp.uplinks.learned_analog import NAME as LEARNED_ANALOG
from aircomp.uplinks.learned_analog import LearnedAnalogUplink
from aircomp.uplinks.orthogonal import JOINT, OrthogonalUplink
from aircomp.uplinks.orthogonal import KINDS as TDMA
from aircomp.uplinks.perfect import PerfectUplink
from aircomp.uplinks.positional import KINDS as DIGITS
from aircomp.uplinks.positional import PositionalUplink
from aircomp.uplinks.radio import FirstAntenna, RadioUplink
from aircomp.uplinks.rate import RateUplink, short_context, short_settings
from aircomp.uplinks.receiver_csi import TOLD, OwnPilots
from aircomp.uplinks.receivers import (
    BLIND_NET,
    COMPOSITE,
    RECEIVER_CODEBOOK,
    RECEIVER_CSI,
    make_receiver,
    receiver_names,
)
from aircomp.uplinks.reed import ReedUplink
from aircomp.uplinks.settings import UplinkSettings
from aircomp.uplinks.tuma import TumaUplink
from aircomp.uplinks.vote import KINDS as VOTE
from aircomp.uplinks.vote import VoteUplink

RIVALS: tuple[str, ...] = (
    *ANALOG,
    BLIND_ANALOG,
    *TDMA,
    "tdma-coded",
    *VOTE,
    *DIGITS,
    *PROJECTED,
    "reed",
    CHANNELCOMP,
    JOINT,
    LATTICE,
    LEARNED_ANALOG,
    HYBRID,
)
"""The schemes that send no codewords of a shared codebook."""


def uplink_names() -> list[str]:
    """Return the names that `make_uplink` knows."""
    return [
        "ideal",
        "perfect",
        *(name for name in decoder_names() if name != "genie"),
        JOINT_NET,
        *receiver_names(),
        RECEIVER_CSI,
        COMPOSITE,
        TUMA,
        *RIVALS,
    ]


def make_uplink(
    settings: UplinkSettings | str, context: UplinkContext | None = None, *, decoder: Decoder | None = None
) -> Uplink:
    """Build a scheme.

    Args:
        settings: The scheme and its parts, or one of `uplink_names()` with the usual ones.
        context: What it is made for: the model's layers, the seed, where to compute.
        decoder: A decoder of your own in place of the named one; its attribute `codebook`, if it has one, is sent with.
    """
    settings = UplinkSettings(name=settings) if isinstance(settings, str) else settings
    context = context or UplinkContext()
    check_type("settings", settings, UplinkSettings, "UplinkSettings, or the name of a scheme")
    check_type("context", context, UplinkContext, "an UplinkContext")
    check_number("seed", context.seed, low=0, integer=True)
    if decoder is not None:
        check_methods("decoder", decoder, "decode")
        name = f"{type(decoder).__module__}.{type(decoder).__qualname__}"
    else:
        name = settings.name
        check_choice("uplink", name, uplink_names())
    if name == "ideal":
        return IdealUplink(context)
    if name in RIVALS:
        return _rival(name, settings, context)
    if name == TUMA and decoder is None:
        return _zoned(settings, context)
    if name == BLIND_NET and decoder is None:
        return _trained_receiver(settings, context)
    if name == JOINT_NET and decoder is None:
        return _joint(settings, context)
    codebook = getattr(decoder, "codebook", None)
    if decoder is None or codebook is None:
        partner, codebook, _ = decoder_and_codebook(_choice(name, settings, context))
        decoder = decoder or partner
    plain = settings.changed(energy="equal", pilots=0)
    if name == "perfect":  # what has no radio needs neither pilots nor energies
        return PerfectUplink(DigitalUplink(name, codebook, decoder, plain, context))
    if name in receiver_names():
        link = DigitalUplink(name, codebook, decoder, plain, context)
        return RadioUplink(link, make_receiver(name, codebook, settings.of_decoder(name)))
    if name in (RECEIVER_CSI, COMPOSITE):
        return _with_block_pilots(name, codebook, decoder, plain, context)
    if context.block_uses:
        return RadioUplink(DigitalUplink(name, codebook, decoder, plain, context), FirstAntenna(decoder))
    link = DigitalUplink(name, codebook, decoder, settings, context)
    if settings.rate == "fixed":
        return link
    short = short_settings(settings)
    partner, codebook, _ = decoder_and_codebook(_choice(name, short, context))
    return RateUplink(link, DigitalUplink(name, codebook, partner, short, short_context(context)))


def _with_block_pilots(
    name: str, codebook: Tensor, decoder: Decoder, settings: UplinkSettings, context: UplinkContext
) -> BlockPilotsUplink:
    def plan(slots: int) -> BlockPilots:
        room = (slots, codebook.shape[1], context.block_uses)
        if name == COMPOSITE:
            return CompositePilot(*room)
        return OwnPilots(*room, settings.receiver_csi.pilots, settings.receiver_csi.passes)

    link = DigitalUplink(name, codebook, decoder, settings, context, lambda slots: len(plan(slots).places))
    return BlockPilotsUplink(link, plan, TOLD if name == RECEIVER_CSI else ())


def _trained_receiver(settings: UplinkSettings, context: UplinkContext) -> RadioUplink:
    layer = BlindLayer.load(settings.layer, device=context.device)
    own, uses = settings.codebook in ("auto", "layer"), layer.codebook.shape[1]
    if settings.layer is not None:  # which has a length of its own
        settings = settings.changed(codeword_length=uses)
    if own and uses != settings.codeword_length:
        raise ConfigError(
            f"uplink.codeword_length = {settings.codeword_length}, but the trained codewords have {uses} uses; "
            "give a layer of that length, or set uplink.codebook = 'low-coherence'"
        )
    choice = _choice(BLIND_NET, settings.changed(codebook="low-coherence") if own else settings, context)
    decoder, drawn, _ = decoder_and_codebook(choice)
    codebook, plain = layer.codebook if own else drawn, settings.changed(energy="equal", pilots=0)
    link = DigitalUplink(BLIND_NET, codebook, decoder, plain, context)
    return RadioUplink(link, make_receiver(BLIND_NET, codebook, settings.blind_net, layer.net))


def _joint(settings: UplinkSettings, context: UplinkContext) -> Uplink:
    if context.block_uses:  # gains that differ would undo the energies that devices agreed on
        raise ConfigError(
            f"uplink = {JOINT_NET!r} needs devices that arrive equally loud, but the channel fades; use channel.kind = "
            "'awgn', or uplink = 'gamp'"
        )
    code = JointLayer.load(settings.layer, device=context.device).code
    plain = settings.changed(name="gamp", codebook="two-bases", layer=None)
    decoder, codebook, _ = decoder_and_codebook(_choice("gamp", plain, context))
    return DigitalUplink(JOINT_NET, codebook, decoder, settings, context, code=code)


def _rival(name: str, settings: UplinkSettings, context: UplinkContext) -> Uplink:
    air: Any = {  # Any: each takes what it needs
        "fragment_length": settings.quantize.fragment_length,
        "uses": settings.codeword_length,
        "context": context,
    }
    peak = NO_PEAK if settings.peak is None else settings.peak
    if name in (*ANALOG, BLIND_ANALOG):
        analog = AnalogUplink(name, settings.analog, peak=peak, pilots=settings.pilots, **air)
        return BlindAnalogUplink(analog) if name == BLIND_ANALOG else analog
    if name in (*TDMA, JOINT):
        return OrthogonalUplink(
            name, settings.tdma, quantize=settings.quantize, uses=settings.codeword_length, peak=peak, context=context
        )
    if name == "tdma-coded":
        return CodedUplink(quantize=settings.quantize, uses=settings.codeword_length, context=context)
    if name in VOTE:
        return VoteUplink(name, settings.vote, **air)
    if name in DIGITS:
        return PositionalUplink(name, settings.digits, pilots=settings.pilots, **air)
    if name == LATTICE:
        return LatticeUplink(settings.digits.clip, **air)
    if name == CHANNELCOMP:
        return ChannelCompUplink(settings.channelcomp, pilots=settings.pilots, **air)
    if name == LEARNED_ANALOG:
        code = AnalogCode.load(settings.layer, device=context.device)
        length = settings.quantize.fragment_length
        return LearnedAnalogUplink(code, fragment_length=length, pilots=settings.pilots, context=context)
    if name == HYBRID:
        return HybridUplink(pilots=settings.pilots, **air)
    if name == "reed":
        return ReedUplink(pilots=settings.pilots, **air)
    return ADsgdUplink(name, settings.a_dsgd, pilots=settings.pilots, **air)


def _zoned(settings: UplinkSettings, context: UplinkContext) -> TumaUplink:
    zones, number = settings.tuma.zones or context.access_points, settings.quantize.num_codewords
    if zones * number > MOST_CODEWORDS:
        raise ConfigError(
            f"{zones} zones of {number} codewords are {zones * number}, and a random-access codebook holds {MOST_CODEWORDS}; "
            "lower uplink.tuma.zones or quantize.num_codewords"
        )
    choice = replace(_choice(TUMA, settings, context), num_codewords=zones * number)
    decoder, codebook, _ = decoder_and_codebook(choice)
    if len(codebook) != zones * number:
        raise ConfigError(
            f"the trained codebook has {len(codebook)} codewords, and {zones} zones of {number} need {zones * number}; "
            "leave uplink.codebook at 'auto'"
        )
    plain = settings.changed(energy="equal", pilots=0)
    return TumaUplink(DigitalUplink(TUMA, codebook[:number], decoder, plain, context), codebook, settings.tuma)


def _choice(name: str, settings: UplinkSettings, context: UplinkContext) -> DecoderChoice:
    kind = (
        {**RECEIVER_CODEBOOK, TUMA: "low-coherence"}.get(name, "auto")
        if settings.codebook == "auto"
        else settings.codebook
    )
    return DecoderChoice(
        decoder=name if name in decoder_names() else "genie",
        codebook=kind,
        num_codewords=settings.quantize.num_codewords,
        codeword_length=settings.codeword_length,
        layer=settings.layer,
        snr_reference=context.snr_reference,
        seed=context.seed,
        settings=settings.of_decoder(name) if name in decoder_names() else None,
        device=context.device,
    )
