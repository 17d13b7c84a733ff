r"""Where to spend the air: fewer slots, each sent several times, at the same channel uses.

At low SNR a slot sent once cannot be decoded, whatever the decoder: its counts hold more bits than its uses carry. The
base station then asks for the $\lfloor J / r \rfloor$ slots in which its own update has most energy, and every device
sends each of them $r$ times. The copies are averaged before decoding, which divides the noise by $r$; power per use,
channel uses and energy stay what they were. What was not asked for stays in the devices' error memory.

To compare numbers of copies with each other, use the SNR reference `transmit`. Under `round` the noise follows the power of
what is in the air, and energetic slots, in which devices agree less, have less of it (on digits about 1 dB).

    energy of the base station's fragments ──► schedule ──► asked slots (announced with the codebook)
    signal [asked, uses] ──► repeat ──► channel ──► combine ──► decoder ──► put_slots: zero in all other slots

The receiver's part is in `schemes/digital/repetition.py`.
"""

import math
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.errors import ConfigError

# auto chooses among these, of equally good ones the first; eight never led on federated digits: so few slots learn slowly
COPIES = (4, 2, 1)
# Share of the update's energy that decoding leaves right, 1 − NMSE of the soft counts, by SNR in decibels: the bundled layer,
# `slot` SNR, seven rounds of the paper's ResNet, three of them at −10, −5 and 8 dB. Its logarithm is concave: at a higher SNR
# auto never sends more often.
DECODED = ((-10.0, 0.05), (-5.0, 0.29), (0.0, 0.64), (3.0, 0.80), (5.0, 0.89), (8.0, 0.97), (10.0, 0.99))


Repeat = Literal["auto"] | int
"""Times that a slot is sent, or auto: chosen from round to round."""


def choose_repeat(repeat: Repeat, snr_db: float | None, energy: Float[Tensor, " slots"]) -> int:
    """Return how often slots are sent in the next round.

    Args:
        repeat: A number, or auto: the one with which most of the update arrives.
        snr_db: The SNR that the base station estimated in the last round; without an estimate auto sends once.
        energy: Of the base station's own fragments.
    """
    if repeat != "auto":
        return repeat
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
        raise ConfigError(f"repeat = {repeat}: expected at least 1 and at most the {len(energy)} slots of a round")
    return energy.sort(descending=True, stable=True).indices[: len(energy) // repeat].sort().values


def leave_out(
    asked: Int[Tensor, " asked"] | None, num_slots: int, number: int, *, rng: torch.Generator
) -> Int[Tensor, " fewer"]:
    """Return the asked slots but some, drawn anew each round, so that other things find room.

    Raises:
        ConfigError: If none were left.
    """
    slots = torch.arange(num_slots) if asked is None else asked
    if number >= len(slots):
        raise ConfigError(f"uplink.pilots leave none of the round's {num_slots} slots; expected fewer")
    kept = torch.randperm(len(slots), generator=rng)[number:].sort().values
    return slots[kept.to(slots.device)]
