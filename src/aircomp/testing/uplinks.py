"""What holds of every uplink scheme, on a channel without noise, with noise, and with silent devices."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from aircomp.channel.awgn import Awgn
from aircomp.channel.base import Channel, Csi
from aircomp.channel.signal import Signal
from aircomp.common.rng import generator
from aircomp.link import Exchange, Link, communicate
from aircomp.testing.made import made
from aircomp.uplinks.base import Uplink
from aircomp.uplinks.meter import TOLERANCE
from aircomp.uplinks.outputs import Counts, Mean, Vectors, Vote

_DEVICES, _PARAMS = 6, 2_000
_CLEAN = 200.0
"""Decibels that leave no error."""
_LOST = 0.008
"""Share of the energy that may be wrong on a clean channel: AMP-DA as published leaves .0055, a scheme that weighs
devices by their amplitude .0034; an update that is a tenth too long has .01."""


def check_uplink(make: Callable[[], Uplink], channel: Callable[[float], Channel] = Awgn) -> None:
    """Check the properties that every uplink scheme must have.

    Args:
        make: Builds the scheme.
        channel: Builds the channel that the scheme is for, with an SNR in decibels; the paper's by default.

    Raises:
        AssertionError: With a sentence that says what the scheme did.
    """
    uplink = made(make, "broadcast", "encode", "decode", "diagnose")
    assert uplink.offers in (Counts, Vectors, Mean, Vote), (
        f"it offers {uplink.offers}, expected one of the four outputs"
    )
    rng = generator(0, "messages")
    base, *messages = (torch.randn(1 + _DEVICES, _PARAMS, generator=rng) ** 3).unbind()
    messages = torch.stack(messages)
    quiet = channel(_CLEAN)
    clean = _send(make(), base, messages, quiet)
    _check_form(clean, uplink)
    _check_clean(clean, messages, uplink)
    _check_order(make, base, messages, clean, quiet)
    _check_determinism(make, base, messages, channel(5.0))
    _check_power(clean, uplink)
    _check_silence(make, base, messages, _OneSilent(quiet))
    _check_edges(make, base, messages, channel(0.0))


@dataclass(frozen=True)
class _OneSilent:
    """A channel whose first device is in a deep fade."""

    channel: Channel

    def sound(self, num_devices: int, num_uses: int, *, rng: torch.Generator) -> Csi:
        csi = self.channel.sound(num_devices, num_uses, rng=rng)
        known = csi.at_devices
        scale = torch.ones(num_devices, 1) if known.scale is None else known.scale.clone()
        scale[0] = 0
        told = replace(
            known,
            scale=scale,
            block_uses=known.block_uses or max(num_uses, 1),
            snr=None if known.snr is None else known.snr * (scale != 0),
            over_noise=None if known.over_noise is None else known.over_noise.where(scale[:, :, None] != 0, 0),
        )
        return replace(csi, at_devices=told)

    def carry(self, signal: Signal, csi: Csi, *, rng: torch.Generator) -> Any:
        return self.channel.carry(signal, csi, rng=rng)


def _link(uplink: Uplink, channel: Channel) -> Link:
    return Link(uplink, channel, "sign-vote" if uplink.offers is Vote else "mean", readout="integers")


def _send(uplink: Uplink, base: Tensor, messages: Tensor, channel: Channel) -> Exchange:
    return communicate(_link(uplink, channel), base, messages, {}, 0)


def _check_form(exchange: Exchange, uplink: Uplink) -> None:
    assert exchange.update.shape == (_PARAMS,), (
        f"the update has shape {tuple(exchange.update.shape)}, expected [{_PARAMS}]"
    )
    assert torch.isfinite(exchange.update).all(), "the update is not finite"
    assert exchange.sent.reconstruction.shape == (_DEVICES, _PARAMS), "not every device knows what it sent"
    for name, value in exchange.memory.items():
        assert isinstance(value, Tensor), f"it remembers {name} as {type(value).__name__}, expected a tensor"
    if exchange.announced.num_uses and uplink.uses_radio:
        sent, announced = exchange.sent.signal.superpose(None)[0].numel(), exchange.announced.num_uses
        assert sent == announced, f"it announced {announced} channel uses and sent {sent}"


def _check_clean(exchange: Exchange, messages: Tensor, uplink: Uplink) -> None:
    if uplink.offers is Vote:
        agreed = ((messages > 0).all(dim=0) | (messages < 0).all(dim=0)) & exchange.sent.reconstruction.any(dim=0)
        right = exchange.update.sign() == messages[0].sign()
        assert right[agreed].all(), "without noise the vote is wrong where all devices agree"
        return
    truth = exchange.sent.reconstruction.mean(dim=0)
    error = float((exchange.update - truth).square().sum() / truth.square().sum())
    assert error < _LOST, f"without noise, {error:.2g} of the mean of what devices sent is wrong"


def _check_order(make: Callable[[], Uplink], base: Tensor, messages: Tensor, clean: Exchange, channel: Channel) -> None:
    turned = _send(make(), base, messages.flip(0), channel)
    before, after = clean.update, turned.update
    if isinstance(clean.output, Vote):  # where devices disagree, random phases may decide
        agreed = messages.sign().sum(dim=0).abs() == len(messages)
        before, after = before[agreed], after[agreed]
    error = float((after - before).square().sum() / before.square().sum())
    assert error < _LOST, "the order of the devices changes the update"


def _check_determinism(make: Callable[[], Uplink], base: Tensor, messages: Tensor, channel: Channel) -> None:
    once, again = (_send(make(), base, messages, channel) for _ in range(2))
    assert torch.equal(once.update, again.update), "equal seeds give another update"
    following = communicate(_link(make(), channel), base, messages, once.memory, 1)
    assert torch.isfinite(following.update).all(), "the round after one with noise is not finite"


def _check_power(exchange: Exchange, uplink: Uplink) -> None:
    air = exchange.air
    if uplink.uses_radio and air.channel_uses:
        ratio = float(air.energy.mean()) / air.nominal_energy
        assert abs(ratio - 1) < TOLERANCE, f"devices spend {ratio:.3g} times the power that they are meant to"


def _check_silence(make: Callable[[], Uplink], base: Tensor, messages: Tensor, channel: Channel) -> None:
    uplink = make()
    if not uplink.uses_radio:
        return
    exchange = _send(uplink, base, messages, channel)
    assert float(exchange.air.energy[0]) == 0, "a silent device spends energy"
    assert not exchange.sent.reconstruction[0].any(), "a silent device believes that it sent something"
    if uplink.offers is not Vote:
        truth = exchange.sent.reconstruction[1:].mean(dim=0)
        error = float((exchange.update - truth).square().sum() / truth.square().sum())
        assert error < _LOST, f"with a silent device, {error:.2g} of the mean of the others is wrong"


def _check_edges(make: Callable[[], Uplink], base: Tensor, messages: Tensor, channel: Channel) -> None:
    for what, own, sent in (
        ("one device", base, messages[:1]),
        ("updates of zero", torch.zeros_like(base), torch.zeros_like(messages)),
        ("a base station that learnt nothing", torch.zeros_like(base), messages),
        ("tiny updates", 1e-12 * base, 1e-12 * messages),
    ):
        update = _send(make(), own, sent, channel).update
        assert torch.isfinite(update).all(), f"the update of {what} is not finite"
