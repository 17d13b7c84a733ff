"""A look at one slot behind fading: how the devices' signals arrive, who is silent, and what the receiver makes of it."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from aircomp.channel.base import Csi
from aircomp.channel.signal import slot_blocks
from aircomp.common.results import Row
from aircomp.report.explain import most_telling
from aircomp.report.figures import bars, scatter
from aircomp.report.page import Figure
from aircomp.schemes.digital.drawn import CODEWORD_LENGTH, FadedRound

GRID = 12
"""Devices that arrive within a twelfth of the largest gain are drawn as one point with all their numbers."""


@dataclass(frozen=True)
class FadedSlot:
    """One slot: what each device sent through which gains, and what the receiver thought."""

    chosen: Int[Tensor, " devices"]
    """The codeword that each device chose."""
    arriving: Complex[Tensor, "devices antennas"]
    """Gains as signals arrive, behind power control and over the level that it aims at; zero where a device is silent."""
    own: Complex[Tensor, " devices"]
    """Every device's gain to the first antenna as the air has it, without power control."""
    speaking: Bool[Tensor, " devices"]
    truth: Int[Tensor, " codewords"]
    soft: Float[Tensor, " codewords"]
    decoded: Int[Tensor, " codewords"]
    round_accuracy: float

    @property
    def excess(self) -> Int[Tensor, " devices"]:
        """How much oftener than it was sent each device's codeword was counted."""
        return (self.decoded - self.truth)[self.chosen.long()]


def look_at_slot(whole: FadedRound, slot: int) -> FadedSlot:
    """Follow one slot of a round."""
    sent = whole.sent
    arriving, own = _gains(sent.csi, len(sent.counts), slot)
    everybody = torch.ones(len(sent.chosen), dtype=torch.bool)
    return FadedSlot(
        chosen=sent.chosen[:, slot],
        arriving=arriving,
        own=own,
        speaking=everybody if sent.speaking is None else sent.speaking[:, slot],
        truth=sent.counts[slot],
        soft=whole.decoded.mean[slot],
        decoded=whole.decoded.counts[slot],
        round_accuracy=whole.accuracy,
    )


def _gains(csi: Csi, num_slots: int, slot: int) -> tuple[Tensor, Tensor]:
    """Return the gains of a slot as signals arrive, and those of the first antenna as the air has them."""
    heard = csi.with_power
    assert heard is not None and csi.gains is not None and csi.level is not None  # noqa: PT018 (a fading channel's)
    block = int(slot_blocks(num_slots, CODEWORD_LENGTH, heard.block_uses)[slot])
    return heard.values[:, block] / csi.level[block], csi.gains.values[:, block, 0]


def figures_of(slot: FadedSlot) -> tuple[Figure, ...]:
    """Draw the gains of the devices, and what was counted beside what was sent."""
    sent = f"{int(slot.speaking.sum())} of {len(slot.chosen)} devices send"
    shown = most_telling(slot.truth, slot.soft)
    names = [f"#{j}" for j in shown]
    counted = {"sent": slot.truth, "soft count": slot.soft, "rounded": slot.decoded}
    return (
        scatter(
            constellation(slot),
            x="in phase",
            y="in quadrature",
            title="How the devices arrive at the first antenna",
            alt=f"Complex gains of the devices, by number; {sent}.",
        ),
        bars(
            {label: [(n, float(v[j])) for n, j in zip(names, shown, strict=True)] for label, v in counted.items()},
            x="devices",
            y="codeword",
            title="What was sent, and what was counted",
            alt=f"True and decoded counts of codewords {', '.join(names)}.",
        ),
    )


def constellation(slot: FadedSlot) -> dict[str, list[tuple[float, float, str]]]:
    """Return where devices arrive, by what became of them; a silent one stands where its own weak gain would bring it."""
    groups = {
        "codeword counted in full": (slot.arriving[:, 0], slot.speaking & (slot.excess == 0)),
        "codeword counted too low": (slot.arriving[:, 0], slot.speaking & (slot.excess < 0)),
        "codeword counted too high": (slot.arriving[:, 0], slot.speaking & (slot.excess > 0)),
        "silent (its own gain)": (slot.own, ~slot.speaking),
    }
    reach = max(float(values[who].abs().max()) if who.any() else 0.0 for values, who in groups.values())
    return {name: _merged(values, who, reach / GRID) for name, (values, who) in groups.items()}


def _merged(values: Tensor, who: Tensor, near: float) -> list[tuple[float, float, str]]:
    """Return points with the numbers of their devices; those that would hide each other are one."""
    places: list[tuple[complex, list[str]]] = []
    for device in who.nonzero().flatten().tolist():
        gain = complex(values[device])
        for place, numbers in places:
            if abs(place - gain) < near:
                numbers.append(str(device + 1))
                break
        else:
            places.append((gain, [str(device + 1)]))
    return [(place.real, place.imag, ", ".join(numbers)) for place, numbers in places]


def rows_of(slot: FadedSlot) -> list[Row]:
    """Return the numbers behind the figures, a row for each device."""
    chosen = slot.chosen.long()
    power, angle = slot.arriving.abs().square(), slot.arriving[:, 0].angle().rad2deg()
    return [
        {
            "device": k + 1,
            "codeword": j,
            "silent": not bool(slot.speaking[k]),
            "power_at_first_antenna": float(power[k, 0]),
            "phase_at_first_antenna_deg": float(angle[k]) if slot.speaking[k] else None,
            "mean_power": float(power[k].mean()),
            "devices_on_codeword": int(slot.truth[j]),
            "soft_count": float(slot.soft[j]),
            "counted": int(slot.decoded[j]),
        }
        for k, j in enumerate(chosen.tolist())
    ]
