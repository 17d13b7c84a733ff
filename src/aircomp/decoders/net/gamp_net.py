"""GAMP-Net, this package's own network: GAMP unrolled into layers, with learned scalars and a small CNN in each.

It takes the paper's idea (Sec. III-E) and differs from the paper's network, `amp_da_net.py` beside it, in what a layer
computes. The blocks of a layer are in `aircomp.decoders.net.blocks`. The scalars start where the network is GAMP
(`aircomp.decoders.amp.steps`): gain, precision and temperature at one, the gates of damping and of expectation maximisation
(EM) nearly shut, and a CNN that corrects nothing. What EM learns belongs to the round: each layer visits all slots, a chunk
at a time, before the next one begins.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common import rng as rngs
from aircomp.common.radio import SnrReference
from aircomp.common.threads import even_slices, spread, whole_cores
from aircomp.decoders.amp.prior import reach_for
from aircomp.decoders.amp.steps import MIN_NOISE, AmpState, PreparedCodebook, start
from aircomp.decoders.base import Decoded, Observation, check_codebook, check_received
from aircomp.decoders.estimate.pilot import PilotEstimator
from aircomp.decoders.heard import hear, noise_per_slot
from aircomp.decoders.kernels import native
from aircomp.decoders.net.base import Net, NetDecoder, NetState
from aircomp.decoders.net.blocks import (
    Belief,
    Scalars,
    expectation_maximisation,
    initial_belief,
    net_layer,
    pool,
    run_layer,
)
from aircomp.decoders.net.cnn import Cnn, Workspace
from aircomp.decoders.net.tempered import CountTable
from aircomp.decoders.settings import GampNetSettings

log = logging.getLogger(__name__)

CHUNK = 1024  # slots decoded at a time, at most, by a thread: bounds the temporaries, changes nothing else


CNN_GATE = 0.85  # ζ at the start, the paper's (Sec. III-E)
# The paper does not give the gates (sigmoids) of damping and EM at the start: nearly shut, so that the network begins as
# GAMP, yet open enough for a gradient, 0.02·0.98 of what passes.
SMALL_GATE = 0.02
BATCH_ESTIMATE: dict[str, Any] = {
    "pilot_passes": 1,
    "fit_steps": 6,
}  # a batch tells too little for more, and training waits for it
# Of a codeword: tables of at most 2·256 + 1 offsets (`prior.MAX_REACH`) then stay below 9 MB, whatever the signal, and no
# network was trained with so many devices.
MAX_COUNT = 4096
# Of the trained numbers of devices: estimates at 0 dB are off by a tenth, and that says nothing of the range.
OFF_RANGE = 1.25


@dataclass(frozen=True)
class NetOutput:
    """What the network says of some slots of one round; gradients flow through all of it."""

    mean: Float[Tensor, "slots codewords"]
    """Counts after the last layer, neither clipped nor rounded."""
    num_active_hat: Float[Tensor, ""]
    """Sum of the counts, averaged over slots."""
    noise_var: Float[Tensor, " slots"]


class GampNet(Net):
    """This package's network.

    Args:
        settings: The network's shape.
        rng: Where the CNN's first weights come from; the same ones each time if not given.
    """

    def __init__(self, settings: GampNetSettings, *, rng: torch.Generator | None = None):
        super().__init__()
        self.settings: GampNetSettings = settings
        rng = rngs.generator(0, "gamp-net") if rng is None else rng
        raw = dict.fromkeys(Scalars._fields, _logit(SMALL_GATE))
        raw |= {"gain": 0.0, "precision": 0.0, "temperature": 0.0, "cnn_gate": _logit(CNN_GATE)}
        for name, value in raw.items():
            self.register_parameter(name, nn.Parameter(torch.full((settings.num_layers,), value)))
        self.cnn = nn.ModuleList(Cnn(settings.filters, settings.kernel, rng=rng) for _ in range(settings.num_layers))
        self._workspace = Workspace()

    def scalars(self, like: Tensor) -> list[Scalars]:
        """Return every layer's scalars, mapped into their ranges; a raw value of zero is γ = β = τ = 1."""
        raw = {name: getattr(self, name).to(like) for name in Scalars._fields}
        mapped = {name: torch.sigmoid(value) for name, value in raw.items()}
        mapped["gain"] = _centred_tanh(raw["gain"], 0.3, 2.0)
        mapped["precision"] = _centred_tanh(raw["precision"], 0.5, 2.0)
        # bounded, so that neither the reach of the table nor its exponents run away
        mapped["temperature"] = torch.exp(2 * torch.tanh(raw["temperature"] / 2))
        return [Scalars(*layer) for layer in zip(*(mapped[name].unbind() for name in Scalars._fields), strict=True)]

    def forward(
        self,
        received: Float[Tensor, "slots uses"],
        codebook: Float[Tensor, "codewords uses"],
        popularity: Float[Tensor, " codewords"],
        *,
        num_active: float | None = None,
        noise_var: Float[Tensor, " slots"] | None = None,
        snr_reference: SnrReference = "round",
        log_ratio: Float[Tensor, "slots codewords"] | None = None,
    ) -> NetOutput:
        """Decode slots of one round; differentiable in everything but the estimates that start it.

        Args:
            received: Slots of one round, all of those that share what EM learns.
            codebook: Unit-norm codewords, one a row.
            popularity: The base station's distribution over codewords.
            num_active: Number of active devices, estimated if not given; EM leaves it.
            noise_var: Noise variance of every slot, if known; EM then leaves it.
            snr_reference: Whether an estimated noise variance is one for the round, or follows the power of each `slot`.
            log_ratio: How much likelier than in the round each codeword is in each slot, if that is known.
        """
        popularity = check_received(received, popularity, codebook).to(received)
        given = None if noise_var is None else noise_per_slot(noise_var, received)
        pilot = PilotEstimator(
            codebook.detach(), snr_reference=snr_reference, agreement=self.settings.agreement, **BATCH_ESTIMATE
        )
        shared, noise = pilot.estimate(received.detach(), popularity, num_active, given)
        rate = rates_of_slots(shared.rate, log_ratio)
        return self.unroll(received, codebook, rate, noise, hold_noise=given is not None)

    def decoder(
        self,
        codebook: Float[Tensor, "codewords uses"],
        *,
        snr_reference: SnrReference = "round",
        trained_for: tuple[int, int] | None = None,
    ) -> "GampNetDecoder":
        """Return the decoder of a codebook."""
        return GampNetDecoder(self, codebook, snr_reference=snr_reference, trained_for=trained_for)

    @whole_cores()
    def unroll(
        self,
        received: Float[Tensor, "slots uses"],
        codebook: Float[Tensor, "codewords uses"],
        rate: Float[Tensor, "*slots codewords"],
        noise_var: Float[Tensor, " slots"],
        *,
        hold_noise: bool = False,
        chunk: int | None = None,
        watch: Callable[[NetState], None] | None = None,
    ) -> NetOutput:
        """Run all layers from given rates, whose sum EM leaves, and noise.

        Args:
            received: Slots of one round.
            codebook: Unit-norm codewords, one a row.
            rate: Expected count of every codeword, in all slots alike or in each of them; each row sums to the number of
                devices.
            noise_var: Noise variance of every slot.
            hold_noise: Keep the noise variances.
            chunk: Slots computed at a time; bounds the temporaries, changes nothing else. None: all of them.
            watch: Called with the state after each layer.
        """
        rate = torch.atleast_2d(rate)
        if len(received) == 0 or not rate.any():  # nobody sends; zero, but still part of autograd's graph
            return NetOutput(0 * (received @ codebook.mT), rate.sum(1).mean(), noise_var)
        compiled = native.ready(received, codebook, rate, noise_var)
        book, scalars = PreparedCodebook.of(codebook, by_codeword=not compiled), self.scalars(received)
        chunks = even_slices(len(received), chunk or len(received))
        signals, own = [received[rows] for rows in chunks], len(rate) > 1
        rates = [_by_codeword(rate[rows] if own else rate) for rows in chunks]
        states = [start(y, r) for y, r in zip(signals, rates, strict=True)]
        beliefs = [initial_belief(r, noise_var[rows], own_rates=own) for rows, r in zip(chunks, rates, strict=True)]
        log_total = rate[0].sum().log()
        tables = _tables(states, book, noise_var, rate, scalars)
        # several may decode with one network at a time, but only one trains it
        workspace = self._workspace if torch.is_grad_enabled() else Workspace()
        for k, table, each in zip(scalars, tables, self.cnn, strict=True):
            cnn = cast(Cnn, each)
            fast = net_layer(k, table, cnn) if compiled else None
            layer = partial(run_layer, book=book, k=k, table=table, cnn=cnn, compiled=fast, workspace=workspace)
            states, parts = zip(*spread(layer, states, signals, beliefs), strict=True)
            learn = partial(
                expectation_maximisation, evidence=pool(parts), k=k, log_total=log_total, hold_noise=hold_noise
            )
            beliefs = spread(learn, beliefs) if own else _learn_alike(learn, beliefs)
            if watch is not None:
                watch(NetState.join([_seen(s, b) for s, b in zip(states, beliefs, strict=True)]))
        mean = torch.cat([s.x_hat for s in states])
        return NetOutput(mean, mean.sum(1).mean(), torch.cat([b.noise_var[:, 0] for b in beliefs]))


class GampNetDecoder(NetDecoder):
    """A network with its codebook, as a decoder.

    Args:
        net: The network.
        codebook: Unit-norm codewords, one a row: those the network was trained with.
        snr_reference: Whether the noise variance is one for the round, or follows the power of each `slot`.
        trained_for: Fewest and most active devices of the training rounds, if known. The first round that is clearly off this
            range is logged as a warning.
    """

    def __init__(
        self,
        net: GampNet,
        codebook: Float[Tensor, "codewords uses"],
        *,
        snr_reference: SnrReference = "round",
        trained_for: tuple[int, int] | None = None,
    ):
        self.net, self.codebook = net, check_codebook(codebook)
        self.passes = net.settings.num_layers
        self.convolutions = sum(w.numel() for w in net.cnn.parameters() if w.ndim > 1) * len(codebook)
        self.trained_for, self._warned = trained_for, False
        self.pilot = PilotEstimator(codebook, snr_reference=snr_reference, agreement=net.settings.agreement)

    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot; with side information from the rates of a first pass by message passing."""
        heard = hear(self.codebook, seen)
        exact = heard.exact()
        if exact is not None:
            return exact
        shared, noise = self.pilot.estimate(heard.received, heard.popularity, heard.num_active, heard.noise_var)
        rate = self.pilot.slot_rates(heard.received, noise, shared.rate, seen.slot_layers, seen.bs_indices)
        held = heard.noise_var is not None
        out = self.net.unroll(heard.received, heard.codebook, rate, noise, hold_noise=held, chunk=CHUNK)
        self._warn_off_range(shared.num_active)
        return heard.conclude(out.mean, out.noise_var, shared.num_active, shared.num_active_error)

    @torch.no_grad()
    def trace(self, received: Float[Tensor, "slots uses"], popularity: Float[Tensor, " codewords"]) -> list[NetState]:
        """Return what the network thinks after each layer; all slots are one batch, the round."""
        heard = hear(self.codebook, Observation(received, popularity))
        shared, noise = self.pilot.estimate(heard.received, heard.popularity)
        found: list[NetState] = []
        self.net.unroll(heard.received, heard.codebook, shared.rate, noise, watch=found.append)
        return found

    def _warn_off_range(self, num_active: float) -> None:
        """Say once that a round has another number of devices than those of the training, beyond the estimate's own error."""
        if self.trained_for is None or self._warned:
            return
        low, high = self.trained_for
        if not low / OFF_RANGE <= num_active <= high * OFF_RANGE:
            self._warned = True
            log.warning(
                "the layer was trained on %d to %d active devices, but this round has about %.3g; it counts them less well, "
                "so train a layer for such rounds or use gamp",
                low,
                high,
                num_active,
            )


def _learn_alike(learn: Callable[[Belief], Belief], beliefs: Sequence[Belief]) -> list[Belief]:
    """Learn once what all chunks share: rates, activities, and by how much the noise moves."""
    whole = learn(replace(beliefs[0], noise_var=torch.cat([b.noise_var for b in beliefs])))
    sizes = [len(b.noise_var) for b in beliefs]
    return [replace(whole, noise_var=part) for part in whole.noise_var.split(sizes)]


def _seen(s: AmpState, belief: Belief) -> NetState:
    rate = belief.log_rate.exp()
    total = rate.sum(1, keepdim=True)
    return NetState(s.x_hat, s.nu, s.z, s.v, belief.noise_var[:, 0], total[:, 0], rate / total, rate, belief.activity)


def rates_of_slots(
    rate: Float[Tensor, " codewords"], log_ratio: Float[Tensor, "slots codewords"] | None
) -> Float[Tensor, "*slots codewords"]:
    """Return what to expect of every slot, if it is known how much likelier than in the round each codeword is there."""
    if log_ratio is None or not rate.any():
        return rate
    return rate.sum() * torch.softmax(rate.log() + log_ratio, dim=1)


def _by_codeword(rate: Float[Tensor, "#slots codewords"]) -> Float[Tensor, "#slots codewords"]:
    """Return the same in memory that holds the slots of a codeword side by side, as the CNN wants it."""
    return rate.mT.contiguous().mT


def _tables(
    states: Sequence[AmpState], book: PreparedCodebook, noise_var: Tensor, rate: Tensor, scalars: Sequence[Scalars]
) -> list[CountTable]:
    """Tabulate the counts that matter in each layer.

    The pseudo-channels are widest at the start, where the counts are as unsure as the prior. No count exceeds the number
    of devices; the estimate of that may be too low, though not by half.
    """
    unsure = [
        (s.nu[: len(rate)] @ book.rows_squared).detach().max() for s in (states[:1] if len(rate) == 1 else states)
    ]
    widest = float(noise_var.max().clamp(min=MIN_NOISE) + torch.stack(unsure).max())
    num_active = math.ceil(float(rate[0].sum()))
    stretch = torch.stack([k.temperature / k.precision for k in scalars]).tolist()
    reaches = [reach_for(widest * factor, max_count=max(4, num_active)) for factor in stretch]
    largest = min(2 * num_active + 8, MAX_COUNT)
    tables = {reach: CountTable.of(reach, largest, rate) for reach in set(reaches)}
    return [tables[reach] for reach in reaches]


def _centred_tanh(raw: Tensor, low: float, high: float) -> Tensor:
    """Map the reals onto (low, high) and zero onto one: the paper's centred tanh, moved so that raw zero is neutral."""
    centre, half = (high + low) / 2, (high - low) / 2
    return centre + half * torch.tanh(raw + math.atanh((1 - centre) / half))


def _logit(probability: float) -> float:
    return math.log(probability / (1 - probability))
