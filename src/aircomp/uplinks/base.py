"""The one interface of every uplink scheme, and what comes out of it.

    base station's update ──► broadcast ──────────────┐ (before the round)
    messages [devices, params] ──► encode ──► transmit ──► decode ──► Reception ──► aggregate
                                     │
                                     └─► reconstruction [devices, params]: what error feedback subtracts

A scheme never sees the truth on its receiving side: `decode` gets what the antenna saw and what was broadcast.
`diagnose` compares both sides afterwards, for metrics only.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aircomp.aggregation import Rule, aggregate
from aircomp.encode.schedule import place
from aircomp.errors import ConfigError
from aircomp.quantize.fragment import join, num_slots

Readout = Literal["auto", "integers", "soft", "norm", "unbiased"]
"""The mean of the decoded integers, of their posterior means, the latter at the norm of the former, or not shrunk; auto is
the last one for the mean, and integers for every other rule."""


MIN_DEVICES = 1e-3  # soft counts with a smaller sum mean that nobody sent


@dataclass(frozen=True)
class Cost:
    """What a round costs over the air."""

    channel_uses: int
    """Real channel uses of the round (a complex use counts as two)."""
    energy_per_device: float
    """Transmit energy of one device over the round, in units of one codeword symbol's energy times its uses."""
    side_information: tuple[str, ...] = ()
    """What reaches the base station outside the radio, in words. Nothing may be missing here."""
    num_slots: int = 0
    """Transmission slots, for schemes that have them."""


@dataclass(frozen=True)
class Encoded:
    """What the devices send, and what each believes it sent."""

    payload: Any  # the scheme's own: symbols, indices, bits
    reconstruction: Float[Tensor, "devices params"]
    """The update each device's transmission stands for; error feedback keeps the rest."""
    delivered: Bool[Tensor, " devices"]
    """False where a device could not transmit (a deep fade); it keeps its whole message."""


@dataclass(frozen=True)
class Reception:
    """What the base station holds after the round. A scheme fills the one form that it can offer.

    `counts` with `codewords` is a multiset for each slot (the digital link); whole vectors are the special case of
    one slot, one codeword a device, each counted once. `mean` is for schemes that add in the air, `vote` for schemes
    that only decide a sign.
    """

    num_params: int
    num_active_hat: float
    counts: Int[Tensor, "slots codewords"] | None = None
    codewords: Float[Tensor, "codewords fragment"] | None = None
    mean: Float[Tensor, " params"] | None = None
    vote: Float[Tensor, " params"] | None = None
    soft_counts: Float[Tensor, "slots codewords"] | None = None
    """Posterior mean of the counts, where a decoder is unsure of them."""
    asked: Int[Tensor, " slots"] | None = None
    """The slots of the update that the rows of `counts` belong to; zero everywhere else. None means all."""
    snr_db: float | None = None
    """The SNR of one channel use, as the base station estimates it."""
    detail: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Uplink(Protocol):
    """A scheme: four verbs, its cost, and a look at how well it did."""

    name: str

    def broadcast(self, base_update: Float[Tensor, " params"], *, rng: torch.Generator) -> Any:
        """Return what the base station announces before the round, built from its own update."""
        ...

    def encode(self, messages: Float[Tensor, "devices params"], announced: Any) -> Encoded:
        """Turn every active device's message into what it sends."""
        ...

    def transmit(self, encoded: Encoded, announced: Any, *, rng: torch.Generator) -> Any:
        """Pass the signals of all devices through the channel; superposition happens here."""
        ...

    def decode(self, received: Any, announced: Any) -> Reception:
        """Recover what the base station aggregates."""
        ...

    def cost(self, num_params: int, num_active: int) -> Cost:
        """Return what one round costs."""
        ...

    def diagnose(self, encoded: Encoded, announced: Any, reception: Reception) -> dict[str, float]:
        """Compare what was sent with what was received: metrics only, never fed back."""
        ...


def aggregate_reception(
    reception: Reception, rule: str | Rule, keep: float, readout: Readout = "auto"
) -> Float[Tensor, " params"]:
    """Turn what was received into one update.

    Args:
        reception: What the base station holds.
        rule: An aggregation rule's name, or a function of (counts, codewords).
        keep: Share of the mass that the trimmed means keep.
        readout: What the mean is formed of; counts without a soft form are exact, and all readouts then the same. `auto`
            is the unbiased one for the mean and integers for every other rule.

    Raises:
        ConfigError: If the scheme's output cannot serve the rule: a mean cannot be trimmed, a vote has no size.
    """
    check_readout(rule, readout)
    if readout == "auto":
        readout = "unbiased" if rule == "mean" else "integers"
    if reception.counts is not None and reception.codewords is not None:
        options = {"keep": keep} if rule in ("trimmed-mean", "coordinate-trimmed-mean") else {}
        fragments = aggregate(rule, reception.counts, reception.codewords, **options)
        if readout != "integers" and reception.soft_counts is not None:
            fragments = _soft_mean(reception.soft_counts, reception.codewords, fragments, readout)
        slots = num_slots(reception.num_params, reception.codewords.shape[1])
        return join(place(fragments, reception.asked, slots), reception.num_params)
    if reception.mean is not None and rule == "mean":
        return reception.mean
    if reception.vote is not None and rule == "sign-vote":
        return reception.vote
    offered = "the mean" if reception.mean is not None else "a sign vote" if reception.vote is not None else "nothing"
    raise ConfigError(
        f"the aggregation rule {rule!r} needs counts, but this uplink offers {offered}; choose another rule"
    )


def check_readout(rule: str | Rule, readout: Readout) -> None:
    """Refuse soft counts for a rule that needs integers.

    Raises:
        ConfigError: If it does.
    """
    if readout not in ("auto", "integers") and rule != "mean":
        name = rule if isinstance(rule, str) else getattr(rule, "__name__", type(rule).__name__)
        raise ConfigError(f"aggregate.readout = {readout!r} is for the mean, not for {name!r}; use 'integers'")


def _soft_mean(
    soft_counts: Float[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    of_integers: Float[Tensor, "slots fragment"],
    readout: Readout,
) -> Float[Tensor, "slots fragment"]:
    """Divide by the devices of the round: of a slot that tells little, the sum of the soft counts tells little too."""
    devices = float(soft_counts.sum(1).double().mean()) if len(soft_counts) else 0.0
    if devices < MIN_DEVICES:
        return torch.zeros_like(of_integers)
    soft = towards_sum(soft_counts.to(codewords), devices) @ codewords / devices
    if readout == "norm":
        return with_norm_of(of_integers, soft)
    return soft if readout == "soft" else not_shrunk(soft, soft_counts, codewords, of_integers)


def towards_sum(soft_counts: Float[Tensor, "slots codewords"], devices: float) -> Float[Tensor, "slots codewords"]:
    r"""Let the soft counts of a slot add up to the number of devices, as far as they are sure.

    No decoder's posterior means know that they must. A count with fractional part $p$ is taken for one of the two integers
    around it, with variance $p(1-p)$; the gap is shared out by these variances, and the less of it the larger their sum
    $v$ is, $1/(1 + v/3)$: where a slot tells little, neither does its gap.
    """
    part = soft_counts - soft_counts.floor()
    open_ = part * (1 - part)
    total = open_.sum(1, keepdim=True)
    gap = devices - soft_counts.sum(1, keepdim=True)
    share = open_ / total.clamp(min=torch.finfo(total.dtype).tiny)  # a certain slot has nothing to move
    return (soft_counts + share * gap / (1 + total / 3)).clamp_min(0)


def with_norm_of(model: Float[Tensor, "slots fragment"], update: Float[Tensor, "slots fragment"]) -> Tensor:
    """Scale an update to the norm of another: a posterior mean points well but is too short."""
    length = update.norm()
    return update * (model.norm() / length.where(length > 0, 1))  # a zero update has no direction to keep


def not_shrunk(
    update: Float[Tensor, "slots fragment"],
    soft_counts: Float[Tensor, "slots codewords"],
    codewords: Float[Tensor, "codewords fragment"],
    of_integers: Float[Tensor, "slots fragment"],
) -> Float[Tensor, "slots fragment"]:
    r"""Lengthen the mean of soft counts until, along the true mean, it is as long as that on average.

    A posterior mean has $E\langle\hat u, u\rangle = E\|\hat u\|^2$, so $\hat u$ falls short of $u$ by the ratio of
    $\|\hat u\|^2$ to the energy of $u$. Where slots tell little, that is the energy of $K$ devices which choose
    independently by the round's popularity $\pi$, the mean of the soft counts: in a slot
    $(1 - 1/K)\|\pi Q\|^2 + \sum_j \pi_j \|q_j\|^2 / K$. Where slots tell much, devices are seen to agree more than that,
    and the mean of the integers has the energy. Each is too small where the other holds, so the larger one counts.
    No mean of codewords is longer than the longest of them; soft counts that cancel would otherwise be lengthened at will.

    Args:
        update: The mean of soft counts.
        soft_counts: Posterior means of the counts.
        codewords: What each codeword stands for.
        of_integers: The mean of the decoded integers.
    """
    energy, certain = (float(fragments.double().square().sum()) for fragments in (update, of_integers))
    devices = float(soft_counts.sum(1).double().mean())
    if energy == 0 or devices < 1:
        return update
    popularity, words = soft_counts.double().mean(0) / devices, codewords.double()
    together, apart = (popularity @ words).square().sum(), popularity @ words.square().sum(1)
    independent = len(update) * float((1 - 1 / devices) * together + apart / devices)
    longest = math.sqrt(len(update) * float(words.square().sum(1).max()) / energy)
    return update * max(1.0, min(max(independent, certain) / energy, longest))
