r"""Uncoded analog transmission: every device sends its message as it is, and the air adds the messages up (our gains).

    base station: own energy of every layer ──► gains (announced)
    devices:      fragments [K_a, J, d] · gain of the layer · common scale ──► spread over the uses of a slot
    base station: pilots ──► K̂ and noise;  slots ──► despread, undo gains ──► mean

A slot of layer $i$ whose fragments have energy $E_i$ is received with noise over $g_i^2$, and costs $g_i^2 E_i$. The least
noise in the mean at a given energy has $g_i^2 \propto E_i^{-1/2}$: a layer with small updates is sent louder, but not as loud
as the others. Equal gains are broadband analog aggregation (Zhu, Wang and Huang, 2020).

Messages are not quantised. A slot above the peak limit is sent at the limit, and its rest stays in the error memory.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor

from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.common import rng as rngs
from aircomp.common.settings import Settings
from aircomp.decode.heard_pilots import PilotEstimate, hear_pilots
from aircomp.encode.codebook import random_rotation
from aircomp.encode.energy import limited, scale_to_one
from aircomp.encode.pilots import WithPilots, num_pilots, pilot_sequence
from aircomp.encode.spread import Spread
from aircomp.errors import ConfigError
from aircomp.measure.metrics import vector_nmse
from aircomp.quantize.fragment import join, split
from aircomp.uplinks.base import MEAN_ENERGY, Announced, Memory, Scheme, Sent, UplinkContext
from aircomp.uplinks.outputs import Mean

LEAST_ENERGY = 1e-4
"""Of a layer, over the mean: one without any updates is not sent infinitely loud."""
NO_PEAK = 1e12
"""A limit that no slot reaches: all of a round's energy in one of ten million slots of ten thousand devices is less."""
LEAST_DEVICES = 0.5
"""A mean is of one device at least; half of one is where a number would be rounded to none."""


class AnalogSettings(Settings):
    """Options of analog transmission."""

    gains: Literal["layer", "equal"] = "layer"
    """Louder where the base station's own updates of a layer are small, or the same for all layers."""
    estimate: Literal["unbiased", "lmmse"] = "unbiased"
    """What is received as it is, or shrunk, layer by layer, towards zero by as much as noise is in it."""


@dataclass(frozen=True)
class Kept:
    """What the base station keeps of a round that it announced."""

    update: Float[Tensor, " params"]
    gains: Float[Tensor, " slots"]


class AnalogUplink(Scheme):
    """Analog transmission of whole messages.

    Args:
        settings: Its options.
        fragment_length: Parameters of a slot.
        codeword_length: Channel uses of a slot, at least as many.
        peak: The most energy of a device in a slot; the mean is one.
        pilots: Slots with pilots; None: `num_pilots`.
        context: What the link is made for.
    """

    name, offers = "analog", Mean
    side_information = MEAN_ENERGY

    def __init__(
        self,
        settings: AnalogSettings,
        *,
        fragment_length: int,
        codeword_length: int,
        peak: float,
        pilots: int | None = None,
        context: UplinkContext | None = None,
    ):
        if fragment_length > codeword_length:
            raise ConfigError(
                f"uplink.quantize.fragment_length = {fragment_length} is above uplink.codeword_length = {codeword_length}: "
                "analog needs a channel use for every parameter, so shorten the fragments or lengthen the slots"
            )
        if pilots == 0:
            raise ConfigError("uplink.pilots = 0: analog learns the number of devices from pilots; expected at least 1")
        self.settings, self.context, self.peak, self.pilots = settings, context or UplinkContext(), peak, pilots
        rng = rngs.generator(self.context.seed, "random-access codebook")
        basis = random_rotation(codeword_length, rng)[:fragment_length].float()
        self.basis, self.pilot = basis.to(self.context.device), pilot_sequence(codeword_length)

    def broadcast(self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator) -> Announced:
        """Announce how loud each layer is to be sent."""
        fragments = split(base_update, len(self.basis))
        layers = self._layers(len(fragments)).to(fragments.device)
        per_layer = _layer_means(fragments.double().square().sum(dim=1), layers)
        least = LEAST_ENERGY * float(per_layer[layers].mean())
        loud = torch.ones_like(per_layer)
        if self.settings.gains == "layer" and least > 0:
            loud = per_layer.clamp(min=least).pow(-0.25)
        gains = loud[layers]
        uses = (len(fragments) + self._num_pilots(len(fragments))) * self.basis.shape[1]
        return Announced(base_update.numel(), uses, {"gains": loud.float()}, Kept(base_update, gains))

    def encode(
        self, messages: Float[Tensor, "devices params"], announced: Announced, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Scale every fragment, limit it, and spread it; what is silent or cut off does not count as sent."""
        kept: Kept = announced.kept
        fragments = split(messages, len(self.basis))
        wanted = (fragments.double() * kept.gains[:, None]).square().sum(dim=2)
        scale = scale_to_one(wanted.flatten(), torch.ones_like(wanted).flatten(), self.peak)
        spent = limited(wanted, scale, self.peak)
        share = (spent / (wanted * scale).clamp(min=torch.finfo(spent.dtype).tiny)).sqrt()
        loud = share * kept.gains * scale**0.5
        signal = Spread((fragments * loud[:, :, None]).to(messages), self.basis)
        pilots = self._num_pilots(fragments.shape[1])
        speaking = csi.speaking(fragments.shape[1] + pilots, self.basis.shape[1])
        if speaking is not None:
            share = share * speaking[:, : fragments.shape[1]].to(share)
        heard = join((fragments * share[:, :, None]).to(messages), announced.num_params)
        return Sent(
            WithPilots(signal, self.pilot, pilots),
            heard,
            speaking,
            pilot_uses=pilots * self.basis.shape[1],
            agreed={"scale": torch.tensor(scale, dtype=torch.float64)},
        )

    def decode(
        self, received: Inexact[Tensor, "antennas slots uses"], announced: Announced, csi: AtReceiver
    ) -> tuple[Mean, Memory]:
        """Despread what the first antenna heard in phase, undo the gains, and divide by the devices that pilots tell."""
        kept: Kept = announced.kept
        heard = received[0].real if received.is_complex() else received[0]
        slots = len(kept.gains)
        pilots = hear_pilots(heard[slots:], self.pilot)
        loud = (kept.gains * float(announced.agreed["scale"]) ** 0.5).to(heard)[:, None]
        sums = heard[:slots] @ self.basis.T.to(heard)
        if self.settings.estimate == "lmmse":
            sums = sums * self._signal_share(sums, pilots)[:, None]
        total = join(torch.where(loud > 0, sums / loud, 0.0), announced.num_params)
        devices = max(pilots.num_active, LEAST_DEVICES)
        if self.context.include_base_station:
            total, devices = total + kept.update.to(total), devices + 1
        return Mean(mean=total / devices, num_active_hat=pilots.num_active), {}

    def diagnose(self, sent: Sent, announced: Announced, output: Mean) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        return {"update_nmse": vector_nmse(sent.reconstruction.mean(dim=0), output.mean)}

    def _layers(self, slots: int) -> Int[Tensor, " slots"]:
        layers = self.context.slot_layers
        return torch.zeros(slots, dtype=torch.int64) if layers is None else layers

    def _num_pilots(self, slots: int) -> int:
        return num_pilots(slots) if self.pilots is None else self.pilots

    def _signal_share(self, sums: Float[Tensor, "slots fragment"], pilots: PilotEstimate) -> Float[Tensor, " slots"]:
        """Return the share of each layer's received power that is no noise."""
        layers = self._layers(len(sums)).to(sums.device)
        power = _layer_means(sums.double().square().mean(dim=1), layers)
        share = 1 - pilots.noise_var / power.clamp(min=torch.finfo(power.dtype).tiny)
        return share.clamp(min=0.0)[layers].to(sums)


def _layer_means(of_slots: Float[Tensor, " slots"], layers: Int[Tensor, " slots"]) -> Float[Tensor, " layers"]:
    """Return the mean over the slots of each layer."""
    number = int(layers.max()) + 1 if len(layers) else 0
    sums = of_slots.new_zeros(number).index_add_(0, layers, of_slots)
    return sums / torch.bincount(layers, minlength=number).clamp(min=1)
