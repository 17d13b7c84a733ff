r"""What else can go wrong on white noise, each a function of its own; with the settings' defaults none does anything.

    devices:      signal ──► attackers send louder ──► amplifiers clip ──► sum
    base station: sum ──► noise, loud in bursts or with heavy tails ──► slots get lost ──► converter of few bits

Of two real channel uses that make a complex one, an amplifier clips the length. Below stands what follows for one device
that sends Gaussian symbols of mean power one, or for noise of variance $\sigma^2$. The tests hold each against it.

- `clip_db`, $A^2$: the gain $\alpha = 1 - e^{-A^2} + \tfrac{\sqrt\pi}2 A\,\mathrm{erfc}A$, and a distortion of
  $1 - e^{-A^2} - \alpha^2$ (Bussgang).
- `burst_share`, $q$: the mean noise variance $\sigma^2(1 + q(b - 1))$, where the noise of a burst is $b$ times as strong.
- `tail`, $\nu$: Student's distribution of scale $\sigma$; at 1 it is Cauchy's, without mean and variance.
- `lost`, $p$: nothing in the share $p$ of slots; who does not know which has an error of $p$ at least.
- `adc_bits`: the least distortion that so many bits leave of a Gaussian signal (Max 1960).
- `attackers`, $q$: gains $a$ that nobody announced; the error of the mean of unrelated updates is $q(a - 1)^2$.
"""

from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from aircomp.channel.awgn import Awgn, add_noise
from aircomp.channel.base import ChannelFacts, Csi
from aircomp.channel.settings import SLOT_USES, DisturbanceSettings
from aircomp.channel.signal import THROUGHOUT, Gains, Signal, Symbols
from aircomp.common.packing import pack, unpack

STEPS = (1.5957692, 0.9956867, 0.5860194, 0.3352006, 0.1881388, 0.1040700, 0.0568709, 0.0307609)
"""Steps of the uniform converter of one to eight bits with the least distortion of a Gaussian signal of variance one."""


@dataclass(frozen=True)
class Disturbed(Awgn):
    """White noise on which more goes wrong. A burst lasts `SLOT_USES`, and so many get lost together."""

    disturbance: DisturbanceSettings = field(default_factory=DisturbanceSettings)

    @property
    def facts(self) -> ChannelFacts:
        """What a link must know of it."""
        return replace(super().facts, disturbed=self.disturbance.is_set)

    def sound(self, num_devices: int, num_uses: int, *, rng: torch.Generator) -> Csi:
        """Let everybody send, attackers louder than agreed."""
        csi = super().sound(num_devices, num_uses, rng=rng)
        return replace(csi, gains=attack_gains(self.disturbance, num_devices, rng=rng))

    def carry(self, signal: Signal, csi: Csi, *, rng: torch.Generator) -> Inexact[Tensor, "antennas slots uses"]:
        """Carry what amplifiers let pass."""
        return super().carry(amplified(signal, self.disturbance.clip_db), csi, rng=rng)

    def _heard(self, clean: Tensor, noise_var: Tensor, rng: torch.Generator) -> Inexact[Tensor, "slots uses"]:
        """Return what one antenna hears, behind its converter."""
        noise = add_noise(torch.zeros_like(clean), noise_var, rng=rng)
        amplitude = noise_amplitude(self.disturbance, clean, rng=rng)
        received = clean + (noise if amplitude is None else noise * amplitude.to(noise))
        return converted(without_lost(received, self.disturbance.lost, rng=rng), self.disturbance.adc_bits)


def attack_gains(settings: DisturbanceSettings, num_devices: int, *, rng: torch.Generator) -> Gains | None:
    """Draw who sends louder than agreed; None: nobody."""
    number = round(settings.attackers * num_devices)
    if not number:
        return None
    gains = torch.ones(num_devices)
    gains[torch.randperm(num_devices, generator=rng)[:number]] = 10.0 ** (settings.attack_db / 20)
    return Gains(gains[:, None, None], THROUGHOUT)


def amplified(signal: Signal, clip_db: float | None) -> Signal:
    """Return what amplifiers make of a signal: no complex channel use is longer than the limit; None: there is none."""
    if clip_db is None:
        return signal
    power = signal.power if signal.is_complex else 2 * signal.power
    limit = (power * 10.0 ** (clip_db / 10)) ** 0.5
    return Symbols(torch.stack([_clipped(symbols, limit) for symbols in signal.each()]), signal.power)


def _clipped(symbols: Inexact[Tensor, "slots uses"], limit: float) -> Inexact[Tensor, "slots uses"]:
    whole = symbols if symbols.is_complex() else pack(symbols)
    share = (limit / whole.abs().clamp(min=torch.finfo(whole.real.dtype).tiny)).clamp(max=1.0)
    return whole * share if symbols.is_complex() else unpack(whole * share, symbols.shape[1])


def noise_amplitude(
    settings: DisturbanceSettings, like: Inexact[Tensor, "slots uses"], *, rng: torch.Generator
) -> Float[Tensor, "slots uses"] | None:
    """Draw what the noise of every channel use is multiplied with; None: one."""
    amplitude = None
    if settings.burst_share:
        hit = _of_slots(settings.burst_share, like, rng)
        amplitude = torch.where(hit, 10.0 ** (settings.burst_db / 20), 1.0)
    if settings.tail is not None:
        pairs = like.numel() if like.is_complex() else -(-like.numel() // 2)
        squares = torch.zeros(pairs)
        for _ in range(settings.tail):  # one after the other bounds memory
            squares += torch.randn(pairs, generator=rng).square()
        each = (settings.tail / squares.clamp(min=torch.finfo(squares.dtype).tiny)).sqrt()
        each = (each if like.is_complex() else each.repeat_interleave(2)[: like.numel()]).view(like.shape)
        amplitude = each if amplitude is None else each * amplitude
    return amplitude


def without_lost(
    received: Inexact[Tensor, "slots uses"], share: float, *, rng: torch.Generator
) -> Inexact[Tensor, "slots uses"]:
    """Return what was received with zeros where it was lost."""
    return received if share == 0 else received.masked_fill(_of_slots(share, received, rng).to(received.device), 0.0)


def converted(received: Inexact[Tensor, "slots uses"], bits: int | None) -> Inexact[Tensor, "slots uses"]:
    """Return what a uniform converter makes of it, set to the mean power of the round; None: it is exact."""
    if bits is None or not received.numel():
        return received
    if received.is_complex():
        return torch.view_as_complex(converted(torch.view_as_real(received).flatten(1), bits).view(*received.shape, 2))
    step = STEPS[bits - 1] * received.double().square().mean().sqrt().clamp(min=torch.finfo(torch.float32).tiny)
    level = torch.floor(received / step).clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return ((level + 0.5) * step).to(received)


def _of_slots(share: float, like: Inexact[Tensor, "slots uses"], rng: torch.Generator) -> Tensor:
    """Draw slots of `SLOT_USES` real uses, and return which channel uses lie in them."""
    uses = SLOT_USES // 2 if like.is_complex() else SLOT_USES
    hit = torch.rand(-(-like.numel() // uses), generator=rng) < share
    return hit.repeat_interleave(uses)[: like.numel()].view(like.shape)
