r"""Where to spend the air: fewer slots, each sent several times, at the same channel uses.

At low SNR a slot sent once cannot be decoded, whatever the decoder: its counts hold more bits than its uses carry. The
base station then asks for the $\lfloor J / r \rfloor$ slots in which its own update has most energy, and every device
sends each of them $r$ times. The copies are averaged before decoding, which divides the noise by $r$; power per use,
channel uses and energy stay what they were. What was not asked for stays in the devices' error memory.

To compare numbers of copies with each other, use the SNR reference `transmit`. Under `round` the noise follows the power of
what is in the air, and energetic slots, in which devices agree less, have less of it (on digits about 1 dB).

    energy of the base station's fragments ──► schedule ──► asked slots (announced with the codebook)
    signal [asked, uses] ──► repeat ──► channel ──► combine ──► decoder ──► place: zero in all other slots
"""

import math
from itertools import pairwise
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int, Shaped
from pydantic import Field
from torch import Tensor

from aircomp.common.settings import Settings
from aircomp.errors import ConfigError

# estimates stay in this range: a decoder that leaves no noise, or only noise, must not give an infinite number
SNR_RANGE_DB = (-40.0, 80.0)
# auto chooses among these, of equally good ones the first; eight never led on federated digits: so few slots learn slowly
COPIES = (4, 2, 1)
# Share of the update's energy that decoding leaves right, 1 − NMSE of the soft counts, by SNR in decibels: the bundled layer,
# `slot` SNR, seven rounds of the paper's ResNet, three of them at −10, −5 and 8 dB. Its logarithm is concave: at a higher SNR
# auto never sends more often.
DECODED = ((-10.0, 0.05), (-5.0, 0.29), (0.0, 0.64), (3.0, 0.80), (5.0, 0.89), (8.0, 0.97), (10.0, 0.99))


class AirSettings(Settings):
    """How a round's channel uses are spent."""

    repeat: Literal["auto"] | Annotated[int, Field(ge=1)] = 1
    """Times that a slot is sent, of so many times fewer slots; 1 is the paper's. auto weighs what is then not asked for,
    by the base station's own energy, against what would be decoded wrongly at the estimated SNR."""


def choose_repeat(settings: AirSettings, snr_db: float | None, energy: Float[Tensor, " slots"]) -> int:
    """Return how often slots are sent in the next round.

    Args:
        settings: A number, or auto: the one with which most of the update arrives.
        snr_db: The SNR that the base station estimated in the last round; without an estimate auto sends once.
        energy: Of the base station's own fragments.
    """
    if settings.repeat != "auto":
        return settings.repeat
    if snr_db is None or not energy.any():
        return 1
    return max((r for r in COPIES if r <= len(energy)), key=lambda r: expected_share(energy, r, snr_db))


def expected_share(energy: Float[Tensor, " slots"], repeat: int, snr_db: float) -> float:
    """Return how much of the update's energy is asked for and decoded, judged by the base station's own update."""
    most = energy.double().sort(descending=True).values
    asked = float(most[: len(energy) // repeat].sum() / most.sum())
    return asked * _decoded(snr_db + 10 * math.log10(repeat))


def _decoded(snr_db: float) -> float:
    """Interpolate the logarithm; below the lowest SNR go on along its first piece, above the highest stay."""
    snr_db = min(snr_db, DECODED[-1][0])
    (left, before), (right, after) = next(piece for piece in pairwise(DECODED) if snr_db <= piece[1][0])
    return before * (after / before) ** ((snr_db - left) / (right - left))


def told_snr(settings: AirSettings, snr_db: float | None) -> dict[str, float]:
    """Return the argument of `broadcast` with the estimated SNR, or none: users' own uplinks need not know of it."""
    return {"snr_db": snr_db} if settings.repeat == "auto" and snr_db is not None else {}


def schedule(energy: Float[Tensor, " slots"], repeat: int) -> Int[Tensor, " asked"] | None:
    """Return the slots with most energy, in ascending order, so few that each can be sent `repeat` times.

    Of equal energies the lower slot wins. Every slot once is None: nothing has to be announced.

    >>> import torch
    >>> schedule(torch.tensor([1.0, 5.0, 0.0, 2.0, 9.0]), 2)
    tensor([1, 4])

    Raises:
        ConfigError: If not even one slot can be sent so often.
    """
    if repeat == 1:
        return None
    if not 1 < repeat <= len(energy):
        raise ConfigError(f"air.repeat = {repeat}: expected at least 1 and at most the {len(energy)} slots of a round")
    return energy.sort(descending=True, stable=True).indices[: len(energy) // repeat].sort().values


def only(
    rows: Shaped[Tensor, "*batch slots width"], asked: Int[Tensor, " asked"] | None
) -> Shaped[Tensor, "*batch asked width"]:
    """Return the rows of the asked slots; None means that all slots were asked for."""
    return rows if asked is None else rows[..., asked, :]


def place(
    rows: Shaped[Tensor, "*batch asked width"], asked: Int[Tensor, " asked"] | None, num_slots: int
) -> Shaped[Tensor, "*batch slots width"]:
    """Put the rows of the asked slots where they belong, among zeros: `only` undone."""
    if asked is None:
        return rows
    return rows.new_zeros(*rows.shape[:-2], num_slots, rows.shape[-1]).index_copy_(-2, asked, rows)


def combine(received: Float[Tensor, "copies uses"], repeat: int) -> tuple[Float[Tensor, "asked uses"], float | None]:
    """Average the copies of each slot, which lie behind each other; return the noise variance left in the averages.

    The signal is the same in all copies, so their differences are noise alone and tell its variance without decoding,
    pooled over the round. A single copy tells nothing: None.
    """
    if repeat == 1:
        return received, None
    copies = received.unflatten(0, (-1, repeat))
    combined = copies.mean(dim=1)
    if not torch.isfinite(combined).all():  # their sum is beyond the type's range
        combined = (copies / repeat).sum(dim=1)
    return combined, float(copies.double().var(dim=1).mean()) / repeat


def estimate_snr_db(combined: Float[Tensor, "asked uses"], noise_var: float, repeat: int) -> float:
    """Estimate the SNR of one channel use, before copies were averaged.

    Args:
        combined: What the decoder saw, copies averaged.
        noise_var: The noise variance in it.
        repeat: Number of copies.
    """
    power = float(combined.double().square().mean()) - noise_var
    low, high = SNR_RANGE_DB
    if power <= 0 or noise_var <= 0 or power == math.inf:
        return low if power <= 0 else high
    return min(max(10 * math.log10(power / (noise_var * repeat)), low), high)
