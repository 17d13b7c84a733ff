r"""Decodes once more the slots that message passing left with counts that do not explain what was heard.

    soft counts ──► integers ──► ‖y − xC‖² above what noise allows? ──► these slots: replicas of the labels ──► counts

With few channel uses message passing has little to average over, and some slots in a hundred end in counts that cannot be
right: their residual is far above $l\sigma^2$. Such a slot is searched by replica exchange. Every replica draws the label of
each device anew, as `posterior` does, at a temperature of its own. Hot replicas wander, cold ones settle, and neighbours
change places with the probability that keeps both distributions. One more label than there are devices, and one more
codeword that is silence, let the number of devices be wrong by one.

Few slots fail, so this costs little. At most a share of them is searched, those that fit worst.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.decoders.amp.posterior import Chains, Prior
from aircomp.decoders.rounding import round_to_sum

DEVIATIONS = 4.0
"""Standard deviations by which the energy of noise in a slot may exceed its mean: one slot in a thousand does."""
COLDEST, HOTTEST, REPLICAS = 0.03, 0.25, 4
"""Temperatures of the replicas, as noise variances beside codewords of energy one: labels still move at the coldest."""
SWEEPS, ATTEMPTS = 60, 5
"""Of an attempt, and how many a slot gets that still does not fit, while the share below lasts. Each starts hotter."""
SILENCE = 0.1
"""Devices expected to be missing in a slot."""
MOST = 2.0
"""Over the number of devices: the share of slots that may be searched, each attempt counted. Decoding then takes about
twice as long at most."""
MANY = 256
"""Devices: the labels of more are not searched. One huge slot among ordinary ones makes thousands of them."""
LEAST_NOISE = 1e-6
"""Float32 does not know the residual of a slot any better."""

Labels = Int[Tensor, "slots devices"]


def repair(
    received: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    mean: Float[Tensor, "slots codewords"],
    noise_var: Float[Tensor, " slots"],
    rate: Float[Tensor, "#slots codewords"],
    num_active: float,
) -> Float[Tensor, "slots codewords"]:
    """Return the soft counts, those of slots that do not fit their noise searched anew.

    Args:
        received: What the antenna saw.
        codebook: One codeword a row.
        mean: Soft counts of all slots.
        noise_var: Noise variance per channel use of every slot.
        rate: How often each codeword is expected, in all slots or in each.
        num_active: Number of devices.
    """
    devices, uses = round(num_active), received.shape[1]
    if not 0 < devices <= MANY or len(received) == 0:
        return mean
    noise_var = noise_var.clamp(min=LEAST_NOISE)
    limit = noise_var * (uses + DEVIATIONS * math.sqrt(2 * uses))
    counts = round_to_sum(mean, devices)
    excess = (received - counts.to(codebook) @ codebook).square().sum(1) / limit
    left = math.ceil(min(1.0, MOST / devices) * len(received))
    rows = excess.argsort(descending=True, stable=True)[:left]
    rows = rows[excess[rows] > 1].sort().values
    mean, words = mean.clone(), torch.cat([codebook, codebook.new_zeros(1, uses)])
    for attempt in range(ATTEMPTS):
        if not 0 < len(rows) <= left:
            break
        left -= len(rows)
        labels = torch.nn.functional.pad(_labels(counts[rows]), (0, 1), value=len(codebook))
        prior = torch.cat([rate.expand(len(received), -1)[rows], mean.new_full((len(rows), 1), SILENCE)], dim=1)
        found, fits = _search(received[rows], words, noise_var[rows], limit[rows], prior, labels, attempt)
        mean[rows] = found[:, :-1]
        rows = rows[~fits]
    return mean


def _search(
    received: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    noise_var: Float[Tensor, " slots"],
    limit: Float[Tensor, " slots"],
    rate: Float[Tensor, "slots codewords"],
    labels: Labels,
    attempt: int,
) -> tuple[Float[Tensor, "slots codewords"], Tensor]:
    """Return soft counts, and whether any visited labels fit.

    Where the noise is above the coldest temperature, the coldest replica samples the posterior, and its mean is returned.
    Below it the best labels are returned if they fit, and otherwise what the coldest replica is sure of.
    """
    slots, rng = len(received), rngs.generator(0, "repair", attempt)
    gram, prior = codebook @ codebook.T, Prior.of(rate.repeat(REPLICAS, 1), 0.0)
    coldest = noise_var.clamp(min=COLDEST)
    ladder = torch.linspace(0, 1, REPLICAS, device=received.device)[:, None]
    heat = coldest * (coldest.clamp(min=HOTTEST * (1 + attempt)) / coldest) ** ladder
    matched, energy = (received @ codebook.T).repeat(REPLICAS, 1), received.square().sum(1)
    chains = Chains.start(labels.repeat(REPLICAS, 1), matched, gram, prior)
    best, least, total = labels, torch.full_like(energy, math.inf), torch.zeros_like(rate)
    for sweep in range(SWEEPS):
        uniforms = torch.rand(labels.shape[1], len(matched), generator=rng).to(received)
        chains.sweep(gram, heat.flatten()[:, None], prior, uniforms)
        misfit = energy - _explained(chains, matched, gram).unflatten(0, (REPLICAS, slots))
        lowest, replica = misfit.min(0)
        visited = chains.labels.unflatten(0, (REPLICAS, slots))[replica, torch.arange(slots)]
        best, least = torch.where((lowest < least)[:, None], visited, best), torch.minimum(lowest, least)
        _exchange(chains, misfit, heat, sweep % 2, torch.rand(REPLICAS, slots, generator=rng).to(received))
        if sweep >= SWEEPS // 3:
            total += _counted(chains.labels[:slots], rate)
    fits = least <= limit
    sure = (fits & (noise_var < coldest))[:, None]
    return torch.where(sure, _counted(best, rate), total / (SWEEPS - SWEEPS // 3)), fits


def _explained(chains: Chains, matched: Tensor, gram: Tensor) -> Float[Tensor, " rows"]:
    """Return ‖y‖² − ‖y − xC‖² = Σ_k (c_kᵀy + c_kᵀr) of every replica."""
    own = gram.diagonal()[chains.labels] / 2
    return (matched.gather(1, chains.labels) + chains.field.gather(1, chains.labels) + own).sum(1)


def _exchange(chains: Chains, misfit: Tensor, heat: Tensor, first: int, uniforms: Tensor) -> None:
    """Let neighbouring replicas of a slot change places, those from `first` on in pairs."""
    order = torch.arange(misfit.numel(), device=misfit.device).view_as(misfit).clone()
    for cold in range(first, REPLICAS - 1, 2):
        gain = (misfit[cold] - misfit[cold + 1]) * (1 / heat[cold] - 1 / heat[cold + 1]) / 2
        change = uniforms[cold].log() < gain
        pair = order[cold : cold + 2]
        order[cold : cold + 2] = torch.where(change, pair.flip(0), pair)
    chains.labels, chains.field = chains.labels[order.flatten()], chains.field[order.flatten()]


def _labels(counts: Int[Tensor, "slots codewords"]) -> Labels:
    """Return the codeword of every device."""
    codewords = torch.arange(counts.shape[1], device=counts.device).expand_as(counts)
    return codewords.flatten().repeat_interleave(counts.flatten()).reshape(len(counts), -1)


def _counted(labels: Labels, like: Float[Tensor, "slots codewords"]) -> Float[Tensor, "slots codewords"]:
    return torch.zeros_like(like).scatter_add_(1, labels, torch.ones_like(labels, dtype=like.dtype))
