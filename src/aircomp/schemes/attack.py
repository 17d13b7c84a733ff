"""Attackers on the air: amplifiers hold them to the energy of the round, some jam, some lie about their scale.

What their messages say is `device/corrupt.py`. Here is what they send: the signal of an attacker that would spend more than
the nominal energy of the round is held to it; a jammer sends noise of that energy in place of its signal.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool
from torch import Tensor

from aircomp.channel.base import Attack, Csi
from aircomp.channel.signal import Jammed, Signal, Symbols
from aircomp.device.settings import CorruptionSettings, Lying
from aircomp.errors import ConfigError
from aircomp.schemes.base import Broadcast, Sent
from aircomp.schemes.meter import TOLERANCE


def attack_of(bad: Bool[Tensor, " devices"], settings: CorruptionSettings) -> Attack | None:
    """Return what corrupted devices do beside what their messages say; None: there are none."""
    if not bad.any() or settings.kind in ("none", "silent"):
        return None
    if isinstance(settings, Lying):
        return Attack(bad, report=settings.factor)
    return Attack(bad, jams=settings.kind == "jam")


def attacked(
    scheme: str, sent: Sent, announced: Broadcast, csi: Csi, attack: Attack, *, rng: torch.Generator
) -> tuple[Sent, Csi]:
    """Let amplifiers hold attackers to the nominal energy of the round, and jammers send noise of that energy.

    Args:
        scheme: Its name.
        sent: What the devices send.
        announced: What they know.
        csi: The state of the channel.
        attack: Who attacks, and how.
        rng: Draws the jamming.

    Raises:
        ConfigError: If a scheme is to be jammed that sends no signal.
    """
    signal = sent.signal
    louder = 1.0 if sent.amplitude is None else sent.amplitude**2
    if attack.jams:
        if sent.payload is not None:
            raise ConfigError(
                f"the scheme {scheme} sends no signal that could be jammed; use a scheme that does, say tdma-coded"
            )
        return replace(sent, signal=jammed(signal, announced.num_uses, attack, louder, rng=rng)), csi
    nominal, each = signal.power * announced.num_uses, louder * signal.slot_energy().sum(dim=1).cpu()
    above = attack.devices & (each > (1 + TOLERANCE) * nominal)
    if attack.report or not above.any():  # a liar sends what it should
        return sent, csi
    held = torch.where(above, (nominal / each).sqrt(), 1.0)
    known = csi.at_devices
    scale = held[:, None].float() if known.scale is None else known.scale * held[:, None].to(known.scale)
    told = replace(known, scale=scale, block_uses=known.block_uses or announced.num_uses)
    return sent, replace(csi, at_devices=told)


def jammed(signal: Signal, num_uses: int, attack: Attack, louder: float = 1.0, *, rng: torch.Generator) -> Jammed:
    """Put noise of the nominal energy in the place of what attackers send.

    Args:
        signal: Of all devices.
        num_uses: Channel uses of the round.
        attack: Who jams.
        louder: By how much a cap makes energies louder.
        rng: Draws the noise.
    """
    slots = signal.slot_energy().shape[1]
    kind = torch.complex64 if signal.is_complex else torch.float32
    noise = torch.randn((len(attack.devices), slots, num_uses // slots), generator=rng, dtype=kind)
    noise *= attack.devices[:, None, None]
    amplitude = (signal.power * num_uses / louder) ** 0.5 / noise.abs().square().sum(dim=(1, 2)).sqrt().clamp(min=1e-30)
    return Jammed(signal, Symbols(noise * amplitude[:, None, None], signal.power), attack.devices)
