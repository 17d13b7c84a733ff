"""What a round took, metered from what was sent: channel uses, energy, peak, what was broadcast, what came for free."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aircomp.channel.base import Csi
from aircomp.channel.signal import Signal, slot_blocks
from aircomp.errors import PowerMismatch
from aircomp.schemes.base import Broadcast, Memory, Scheme, Sent
from aircomp.schemes.wire import to_wire

TOLERANCE = 0.01
"""How far the mean power of a run may be from the nominal one, which sets the noise under `transmit`."""


@dataclass(frozen=True)
class Air:
    """The cost of one round over the air."""

    num_slots: int
    channel_uses: int
    """Real ones; a complex use counts as two."""
    pilot_uses: int
    energy: Float[Tensor, " devices"]
    """Of each device, data and pilots; one is the energy of a codeword of unit norm."""
    nominal_energy: float
    """What a device was meant to spend under what power control let the devices of this round do."""
    peak_power: float
    """The largest energy of a device in one channel use."""
    downlink_bits: int
    """What the base station broadcast before the round: the length of its wire form."""
    agreed_bits: int
    """What devices and base station agreed on before they sent, beside the broadcast."""
    side_information: tuple[str, ...]
    """What reached the base station outside the radio."""


@dataclass(frozen=True)
class Admission:
    """What the base station finds in the sketches of a round (`schemes/sketch.py`)."""

    admitted: Bool[Tensor, " devices"]
    cosines: Float[Tensor, " devices"]
    lengths: Float[Tensor, " devices"]
    memory: Memory
    air: Air | None = None
    """What the sketches took, at a power of one."""


CAP = ("the energy of the device that would spend most, which sets how loud all send",)
"""Side information of a round with a cap."""


def measure(scheme: Scheme, broadcast: Broadcast, sent: Sent, csi: Csi) -> Air:
    """Meter a round."""
    bits = 8 * len(broadcast.wire)
    agreed = 8 * len(to_wire(sent.agreed, f"with {scheme.name} devices agree on")) if sent.agreed else 0
    told = scheme.side_information + csi.at_receiver.side_information + (() if sent.amplitude is None else CAP)
    if broadcast.num_uses == 0:
        return Air(0, 0, 0, torch.zeros(csi.at_devices.num_devices), 0.0, 0.0, bits, agreed, told)
    spent, peak = sent.signal.slot_energy(), sent.signal.slot_peak()
    slots, nominal = spent.shape[1], sent.signal.power * broadcast.num_uses
    each = spent.sum(dim=1)
    of_honest = float(_reported(each, csi).mean()) if len(each) else 0.0
    if sent.capped:
        nominal *= min(of_honest / nominal, 1.0)
    if _lied(csi):  # no scheme has the power that a false report would give it
        nominal = float(each.mean())
    elif of_honest:  # what attackers spend is not the scheme's doing
        nominal *= float(each.mean()) / of_honest
    boost = _boost(broadcast, spent, csi)
    if boost is not None:
        meant = float(spent.sum())
        spent, peak = spent * boost, peak * boost
        # what power control adds to a scheme that spends more in some blocks than in others is not the scheme's doing
        nominal *= float(spent.sum()) / meant if meant else float(boost.mean())
    if sent.amplitude is not None:
        louder = sent.amplitude**2
        spent, peak, nominal = louder * spent, louder * peak, louder * nominal
    real = 2 if sent.signal.is_complex else 1
    return Air(
        num_slots=slots,
        channel_uses=real * broadcast.num_uses,
        pilot_uses=real * sent.pilot_uses,
        energy=spent.sum(dim=1).cpu(),
        nominal_energy=nominal,
        peak_power=float(peak.max()) if peak.numel() else 0.0,
        downlink_bits=bits,
        agreed_bits=agreed,
        side_information=told,
    )


def spent_by(signal: Signal, broadcast: Broadcast, csi: Csi) -> Float[Tensor, " devices"]:
    """Return what each device spends on a signal, with what power control adds."""
    spent = signal.slot_energy()
    boost = _boost(broadcast, spent, csi)
    return (spent if boost is None else spent * boost).sum(dim=1).cpu()


def in_units(air: Air, power: float) -> Air:
    """Return a cost that was metered at a power of one at another power."""
    return replace(
        air,
        energy=power * air.energy,
        nominal_energy=power * air.nominal_energy,
        peak_power=power * air.peak_power,
    )


def add_up(parts: Sequence[Air]) -> Air:
    """Return the cost of a round whose messages went in parts."""
    total: dict[str, Any] = {
        name: sum(getattr(part, name) for part in parts)
        for name in (
            "num_slots",
            "channel_uses",
            "pilot_uses",
            "energy",
            "nominal_energy",
            "downlink_bits",
            "agreed_bits",
        )
    }
    told = tuple(dict.fromkeys(what for part in parts for what in part.side_information))
    return Air(**total, peak_power=max(part.peak_power for part in parts), side_information=told)


def _boost(broadcast: Broadcast, spent: Float[Tensor, "devices slots"], csi: Csi) -> Tensor | None:
    """Return what power control multiplies the energy of each device and slot with; None: one."""
    if csi.at_devices.scale is None:
        return None
    blocks = slot_blocks(spent.shape[1], broadcast.num_uses // spent.shape[1], csi.at_devices.block_uses)
    return csi.at_devices.scale.abs().double().square().to(spent.device)[:, blocks]


def _lied(csi: Csi) -> bool:
    """Tell whether somebody reports another amplitude than the true one."""
    reports = csi.at_devices.reports
    return reports is not None and bool(((reports > 0) & (reports != 1)).any())


def _reported(energies: Float[Tensor, " devices"], csi: Csi) -> Float[Tensor, " agreeing"]:
    """Return the energies of those who agree on a scale, as they report them."""
    if csi.at_devices.reports is None:
        return energies  # as they are: a root and a square would round
    return csi.at_devices.as_reported(energies.sqrt()).square()


def amplitude_at_cap(broadcast: Broadcast, sent: Sent, csi: Csi) -> float:
    """Return the factor of all signals with which the device that spends most in the round spends the nominal energy."""
    each = spent_by(sent.signal, broadcast, csi)
    largest = float(_reported(each, csi).max()) if len(each) else 0.0
    return (sent.signal.power * broadcast.num_uses / largest) ** 0.5 if largest > 0 else 1.0


def record_of(air: Air) -> dict[str, float]:
    """Return a round's cost as fields of its record."""
    return {
        "channel_uses": float(air.channel_uses),
        "pilot_share": air.pilot_uses / max(air.channel_uses, 1),
        "energy_per_device": float(air.energy.mean()),
        "energy_spread": float(air.energy.std(correction=0)),
        "energy_max": float(air.energy.max()),
        "energy_nominal": air.nominal_energy,
        "peak_power": air.peak_power,
        "downlink_bits": float(air.downlink_bits),
        "agreed_bits": float(air.agreed_bits),
    }


def check_power(records: Sequence[dict[str, float]]) -> None:
    """See that the devices' mean power over a run was the nominal one, by which `transmit` sets the noise.

    Args:
        records: Of the rounds, each with the fields of `record_of`.

    Raises:
        PowerMismatch: If it was not, within `TOLERANCE`.
    """
    sent = [r for r in records if r.get("energy_nominal")]
    if not sent:
        return
    ratio = statistics.fmean(r["energy_per_device"] for r in sent) / statistics.fmean(r["energy_nominal"] for r in sent)
    if abs(ratio - 1) > TOLERANCE:
        raise PowerMismatch(
            f"devices spent {ratio:.3g} times the nominal power that the noise was set by; expected 1 within {TOLERANCE:g}, "
            "so give the uplink's signal the power that it really has"
        )
