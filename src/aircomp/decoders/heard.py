"""What every decoder does first and last: check what it is given, bring it into range, form the result.

    Observation ──► hear ──► Heard ──► the decoder ──► Heard.conclude ──► Decoded

All that a decoder then computes stays finite, because nothing it starts from is larger than `MAX_DEVICES` codewords.
"""

import logging
import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.decoders.base import (
    MAX_DEVICES,
    MIN_NUM_ACTIVE,
    Decoded,
    Observation,
    check_groups,
    check_num_active,
    check_received,
)
from aircomp.decoders.rounding import conclude
from aircomp.errors import ShapeError

log = logging.getLogger(__name__)

MIN_VAR = 1e-12  # keeps every division finite when there is no noise; far below float32's rounding of the signal
MAX_VAR = float(MAX_DEVICES) ** 2  # of noise: as much as the strongest signal; more of it hides no more
MAX_GIVEN_VAR = torch.finfo(torch.float32).max  # of noise as it is told and given back, in every type of signal


@dataclass(frozen=True)
class Heard:
    """What a decoder is given, checked and in range."""

    received: Float[Tensor, "slots uses"]
    """No slot is longer than `MAX_DEVICES` codewords."""
    popularity: Float[Tensor, " codewords"]
    codebook: Float[Tensor, "codewords uses"]
    num_active: float | None
    """What was given; less than `MIN_NUM_ACTIVE` is nobody."""
    noise_var: Float[Tensor, " slots"] | None
    """What was given, for `received` as it is here."""
    given_noise: Float[Tensor, " slots"] | None
    """What was given, for the signal as it came."""
    reduction: Float[Tensor, " slots"] | None
    """What slots were divided by; None if all are as they came."""

    def exact(self) -> Decoded | None:
        """Return the result of a round without noise, if it is one."""
        counts = exact_counts(self.received, self.codebook)
        return None if counts is None else self.conclude(counts, noise_per_slot(0, self.received), self.num_active, 0.0)

    def conclude(
        self,
        mean: Float[Tensor, "slots codewords"],
        noise_var: Float[Tensor, " slots"],
        num_active: float | None,
        error: float | None = None,
    ) -> Decoded:
        """Form the result, with the noise of the signal as it came.

        Args:
            mean: Soft counts; none is negative or above `MAX_DEVICES` afterwards.
            noise_var: Noise variance in `received`; what was given comes before it.
            num_active: Number of devices, at most `MAX_DEVICES` of them; None is the mean over slots.
            error: Its standard error, where it is known; a given number has none.
        """
        error = error if self.num_active is None else 0.0
        if self.given_noise is not None:
            noise_var = self.given_noise
        elif self.reduction is not None:
            came = (noise_var.double().sqrt() * self.reduction).square()
            noise_var = came.clamp(max=MAX_GIVEN_VAR).to(noise_var)
        mean = mean.clamp(0, MAX_DEVICES)
        if num_active is None:
            num_active = mean.sum(1, dtype=torch.float64).mean().item() if len(mean) else 0.0
        return replace(conclude(mean, noise_var, min(num_active, MAX_DEVICES)), num_active_error=error)


def hear(codebook: Float[Tensor, "codewords uses"], seen: Observation) -> Heard:
    """Check what a decoder is given and bring it into range.

    A slot stronger than `MAX_DEVICES` codewords is no sum of codewords; it is scaled down to that, and a warning is logged.

    Raises:
        ShapeError: If a tensor has the wrong shape, type or content.
        ConfigError: If `num_active` is no number of devices.
    """
    received, num_active = seen.received, seen.num_active
    for name, given in vars(seen).items():
        if isinstance(given, Tensor) and given.is_meta:
            raise ShapeError(f"{name} is on the meta device and has no values; expected a tensor with some")
    popularity = check_received(received, seen.popularity, codebook).to(received)
    if num_active is not None:
        check_num_active(num_active)
        num_active = float(num_active) if num_active >= MIN_NUM_ACTIVE else 0.0
    for name, groups in (("slot_layers", seen.slot_layers), ("bs_indices", seen.bs_indices)):
        if groups is not None:
            check_groups(groups, len(received), name)
    given = None if seen.noise_var is None else noise_per_slot(seen.noise_var, received)
    noise, reduction = given, _reduction(received)
    if reduction is not None:
        received = (received.double() / reduction[:, None]).to(received)
        noise = None if given is None else (given.double() / reduction / reduction).to(given)
    noise = None if noise is None else noise.clamp(MIN_VAR, MAX_VAR)
    return Heard(received, popularity, codebook.to(received), num_active, noise, given, reduction)


def _reduction(received: Float[Tensor, "slots uses"]) -> Float[Tensor, " slots"] | None:
    """Return what each slot is to be divided by, or None if all are within range."""
    if received.numel() == 0 or float(received.abs().max()) * math.sqrt(received.shape[1]) <= MAX_DEVICES:
        return None
    peak = received.abs().amax(1).double().clamp(min=1)  # first divided by it: squares of the largest numbers overflow
    length = peak * (received.double() / peak[:, None]).norm(dim=1)
    if float(length.max()) <= MAX_DEVICES:
        return None
    log.warning(
        "received holds a slot of norm %.3g, more than %d unit-norm codewords can have; it was scaled down to that, "
        "so check the signal's scale",
        float(length.max()),
        MAX_DEVICES,
    )
    return (length / MAX_DEVICES).clamp(min=1)


FEW_SLOTS = 64  # asked first: they nearly always tell that the others need not be


def exact_counts(
    received: Float[Tensor, "slots uses"], codebook: Float[Tensor, "codewords uses"]
) -> Float[Tensor, "slots codewords"] | None:
    """Return the integers nearest to the matched filter if they explain every slot to rounding error, else None.

    It happens without noise on orthonormal codewords, and in silence. Such counts need no estimate, and this is where
    message passing, made for random codewords in noise, need not settle.
    """
    if len(received) > FEW_SLOTS and exact_counts(received[:FEW_SLOTS], codebook) is None:
        return None
    counts = (received @ (codebook / codebook.square().sum(1, keepdim=True)).T).round_().clamp_min_(0)
    unexplained = (received - counts @ codebook).square().sum(1)
    # 100 dB below the signal: float32 rounds at about 130 dB; an energy beyond its range explains nothing
    exact = (unexplained <= 1e-10 * received.square().sum(1)) & unexplained.isfinite()
    return counts if exact.all() else None


def noise_per_slot(noise_var: float | Tensor, received: Float[Tensor, "slots uses"]) -> Float[Tensor, " slots"]:
    """Spread a given noise variance over the slots, a little above zero and no more than float32 holds.

    Raises:
        ShapeError: If it is neither one number nor one a slot, or is negative or not finite.
    """
    expected = f"expected one number or [{len(received)}], none negative, a variance per channel use"
    if not isinstance(noise_var, int | float | Tensor) or (isinstance(noise_var, Tensor) and noise_var.is_complex()):
        kind = noise_var.dtype if isinstance(noise_var, Tensor) else type(noise_var).__name__
        raise ShapeError(f"noise_var is {kind}; {expected}")
    given = torch.as_tensor(noise_var, dtype=torch.float64, device=received.device)
    if given.ndim > 1 or given.numel() not in (1, len(received)):
        raise ShapeError(f"noise_var has shape {tuple(given.shape)}; {expected}")
    if not torch.isfinite(given).all() or (given < 0).any():
        raise ShapeError(f"noise_var holds values that are negative or not finite; {expected}")
    return given.clamp(max=MAX_GIVEN_VAR).to(received.dtype).expand(len(received)).clamp_min(MIN_VAR)
