"""Every scheme by name: `ideal`, `perfect`, and one for each decoder on the digital link."""

from typing import get_args

import torch
from jaxtyping import Int
from torch import Tensor

from aircomp.channel.awgn import Awgn, Channel
from aircomp.channel.snr import ChannelSettings
from aircomp.common.checks import check_choice, check_methods, check_number, check_type
from aircomp.decode.base import Decoder
from aircomp.decode.side import SideInformation
from aircomp.encode.codebook import EncodeSettings
from aircomp.encode.schedule import AirSettings
from aircomp.quantize.codebook import QuantizeSettings
from aircomp.uplinks.base import Uplink
from aircomp.uplinks.decoders import DecoderChoice, decoder_and_codebook, decoder_names
from aircomp.uplinks.digital import DigitalUplink
from aircomp.uplinks.ideal import IdealUplink
from aircomp.uplinks.perfect import PerfectUplink


def uplink_names() -> list[str]:
    """Return the names that `make_uplink` knows."""
    return ["ideal", "perfect", *(name for name in decoder_names() if name != "genie")]


def make_uplink(
    name: str,
    *,
    quantize: QuantizeSettings,
    encode: EncodeSettings,
    channel: ChannelSettings | Channel,
    seed: int = 0,
    device: str | torch.device = "cpu",
    slot_layers: Int[Tensor, " slots"] | None = None,
    include_base_station: bool = False,
    decoder: Decoder | None = None,
    air: AirSettings | None = None,
    side_information: SideInformation = "both",
) -> Uplink:
    """Build a scheme by name.

    Args:
        name: One of `uplink_names()`.
        quantize: Settings of the quantiser (digital schemes).
        encode: Settings of the random-access codebook (digital schemes).
        channel: Settings of the noise, or a channel of your own.
        seed: What the random-access codebook is drawn from.
        device: Where to compute.
        slot_layers: The parameter tensor of each slot, for decoders that use it.
        include_base_station: Whether the base station's own update joins the aggregate.
        decoder: A decoder of your own in place of the named one; its attribute `codebook`, if it has one, is sent with.
        air: How often slots are sent (digital schemes); every one once by default.
        side_information: What the decoder is told of each slot beforehand (digital schemes).
    """
    check_type("quantize", quantize, QuantizeSettings, "QuantizeSettings")
    check_type("encode", encode, EncodeSettings, "EncodeSettings")
    check_type("air", air, (AirSettings, type(None)), "AirSettings, or None")
    check_number("seed", seed, low=0, integer=True)
    check_choice("side_information", side_information, get_args(SideInformation))
    if not isinstance(channel, ChannelSettings):
        check_methods("channel", channel, "transmit")
    if decoder is not None:
        check_methods("decoder", decoder, "decode")
        name = f"{type(decoder).__module__}.{type(decoder).__qualname__}"
    else:
        check_choice("uplink", name, uplink_names())
    if name == "ideal":
        return IdealUplink(include_base_station=include_base_station)
    codebook = getattr(decoder, "codebook", None)
    reference = channel.snr_reference if isinstance(channel, ChannelSettings) else "round"
    choice = DecoderChoice(
        decoder=name if name in decoder_names() else "genie",
        codebook=encode.codebook,
        num_codewords=quantize.num_codewords,
        codeword_length=encode.codeword_length,
        layer=encode.layer,
        snr_reference=reference,
        seed=seed,
        device=device,
    )
    if decoder is None or codebook is None:
        partner, codebook, _ = decoder_and_codebook(choice)
        decoder = decoder or partner
    noisy = Awgn(channel.snr_db, channel.snr_reference) if isinstance(channel, ChannelSettings) else channel
    link = DigitalUplink(
        name,
        codebook,
        decoder,
        noisy,
        quantize,
        slot_layers=slot_layers,
        include_base_station=include_base_station,
        air=air,
        side_information=side_information,
        shared_noise=reference != "slot",
    )
    return PerfectUplink(link) if name == "perfect" else link
