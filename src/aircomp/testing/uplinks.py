"""What holds of every scheme: on a channel without noise, with noise, with silent devices, and across the barrier.

The barrier: a device knows what was broadcast, read from its wire form, and nothing else of the base station; the base
station knows what it heard, what it broadcast, what it kept in `Private`, and what devices agreed on at a declared price. So
every verb is called once more on an object that was made for this call alone, and in a process of its own (`apart.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from aircomp.channel.awgn import Awgn
from aircomp.channel.base import Attack, Channel, Csi
from aircomp.channel.signal import Signal
from aircomp.common.rng import fixed_generator
from aircomp.errors import AirCompError, ConfigError
from aircomp.link import Exchange, Link, aggregate, carry, communicate, decode, sound
from aircomp.schemes.base import Broadcast, Memory, Scheme, Sent
from aircomp.schemes.meter import TOLERANCE
from aircomp.schemes.outputs import Counts, Mean, Vectors, Vote
from aircomp.testing.apart import remembers, tensors_of
from aircomp.testing.made import made

_DEVICES, _PARAMS = 6, 2_000
_CLEAN = 200.0
"""Decibels that leave no error."""
_LOST = 0.008
"""Share of the energy that may be wrong on a clean channel: AMP-DA as published leaves .0055, a scheme that weighs
devices by their amplitude .0034; an update that is a tenth too long has .01."""
_KNOWN = 0.3
"""Cosine with the mean of the messages of who heard nothing of them."""


def check_uplink(make: Callable[[], Scheme], channel: Callable[[float], Channel] = Awgn) -> None:
    """Check the properties that every scheme must have.

    Args:
        make: Builds the scheme, another object in every call.
        channel: Builds the channel that the scheme is for, with an SNR in decibels; the paper's by default.

    Raises:
        AssertionError: With a sentence that says what the scheme did.
    """
    scheme = made(make, "broadcast", "encode", "decode", "diagnose")
    assert make() is not scheme, "make returned one object twice: devices would share it with the base station"
    assert scheme.offers in (Counts, Vectors, Mean, Vote), (
        f"it offers {scheme.offers}, expected one of the four outputs"
    )
    rng = fixed_generator("messages")
    base, *messages = (torch.randn(1 + _DEVICES, _PARAMS, generator=rng) ** 3).unbind()
    messages = torch.stack(messages)
    quiet, noisy = channel(_CLEAN), channel(5.0)
    remembered = remembers(lambda: _link(make(), channel(5.0)), _DEVICES, _PARAMS)  # before a verb is called here
    _check_travels(make(), base)
    once = _check_barrier(make, base, messages, noisy, {}, 0)
    _check_barrier(make, base, messages, noisy, once.memory, 1)
    assert not remembered, remembered  # the barrier knows better where something is kept
    _check_hears(make, base, messages, noisy)
    clean = _send(make(), base, messages, quiet)
    _check_form(clean, scheme)
    _check_clean(clean, messages, scheme)
    _check_order(make, base, messages, clean, quiet)
    _check_power(clean, scheme)
    _check_agreement(make, base, messages, noisy)
    _check_silence(make, base, messages, _OneSilent(quiet))
    _check_edges(make, base, messages, channel(0.0))


# ── the barrier ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_travels(scheme: Scheme, base: Tensor) -> None:
    announced = scheme.broadcast(base, {}, rng=fixed_generator("broadcast"))
    pair = isinstance(announced, tuple) and len(announced) == 2 and isinstance(announced[0], Broadcast)
    assert pair, f"broadcast returned {type(announced).__name__}, expected (Broadcast, what the base station keeps)"
    try:
        Broadcast.read(announced[0].wire)
    except ConfigError as error:
        raise AssertionError(str(error)) from None


def _raised(error: Exception) -> BaseException:
    """Return what a scheme of the user's own raised, of which the link made a sentence."""
    return error.__cause__ if type(error) is AirCompError and error.__cause__ is not None else error


def _check_barrier(
    make: Callable[[], Scheme],
    base: Tensor,
    messages: Tensor,
    channel: Channel,
    memory: Memory,
    index: int,
) -> Exchange:
    """Send a round twice: with one object, as a run does, and with one of its own for each side."""
    whole, before = make(), messages.clone()
    try:
        done = communicate(_link(whole, channel), base.clone(), messages, memory, index)
    except (
        AttributeError,
        AirCompError,
    ) as error:  # of a `Broadcast` of its own class, of which devices read the usual one
        cause = _raised(error)
        if not isinstance(cause, AttributeError):
            raise AssertionError(str(error)) from error
        raise AssertionError(f"a verb reaches for {cause.name!r}, which did not travel: {cause}") from error
    assert torch.equal(messages, before), "a verb changed the devices' messages in place"
    assert torch.isfinite(done.update).all(), f"the update of round {index} is not finite"
    _check_priced(done.sent, whole)
    link = _link(make(), channel)  # of the devices: it has announced nothing
    heard, csi = Broadcast.read(done.broadcast.wire), sound(link, len(messages), done.broadcast, index)

    def reaches() -> str:
        left = _left_by_broadcast(make, base, memory, link.rng("codebook", index))
        return f"encode reaches for more than the broadcast{left}"

    try:
        sent = link.scheme.encode(messages.clone(), heard, csi.at_devices, rng=link.rng("encode", index))
    except Exception as error:
        raise AssertionError(f"{reaches()}: {error}") from error
    if not _same_sent(sent, done.sent):
        again = communicate(_link(make(), channel), base.clone(), messages, memory, index).sent
        assert _same_sent(again, done.sent), "equal seeds give other signals"
        raise AssertionError(f"{reaches()}: from its wire form it sends other signals")
    _check_base_station(make, done, memory, channel, csi, index)
    return done


def _check_priced(sent: Sent, scheme: Scheme) -> None:
    names = ", ".join(map(repr, sent.agreed))
    assert not sent.agreed or scheme.side_information, (
        f"devices agree on {names} with the base station, and side_information does not say what that takes"
    )
    assert sent.payload is None or scheme.side_information, (
        "its payload arrives without error, and side_information does not say so"
    )


def _left_by_broadcast(make: Callable[[], Scheme], base: Tensor, memory: Memory, rng: torch.Generator) -> str:
    """Return, in words, what `broadcast` stores on the scheme, which devices do not have."""
    used = make()
    used.broadcast(base.clone(), memory, rng=rng)
    before, after = _attributes(make()), _attributes(used)
    names = [name for name in after if name not in before or not _equal(before[name], after[name])]
    return f" (broadcast left {', '.join(names)} on the scheme)" if names else ""


def _attributes(part: Any, path: str = "self", depth: int = 4) -> dict[str, Any]:
    """Return everything on an object and on the parts of it, by path."""
    found = {}
    for name, value in getattr(part, "__dict__", {}).items():
        found[f"{path}.{name}"] = value
        if depth and not isinstance(value, Tensor | type):
            found |= _attributes(value, f"{path}.{name}", depth - 1)
    return found


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    # whatever has attributes is compared by them; what else has no value of its own counts as the same
    simple = (Tensor, int, float, str, bytes, tuple, list, type(None))
    return type(one) is type(other) if not isinstance(one, simple) else repr(one) == repr(other)


def _same_sent(one: Sent, other: Sent) -> bool:
    """Whether two transmissions are the same bits."""
    pairs = zip(tensors_of(one), tensors_of(other), strict=False)
    alike = len(tensors_of(one)) == len(tensors_of(other)) and list(one.agreed) == list(other.agreed)
    return alike and all(a is b or _equal(a, b) for a, b in pairs)


def _check_base_station(
    make: Callable[[], Scheme], done: Exchange, memory: Memory, channel: Channel, csi: Csi, index: int
) -> None:
    """Decode with an object that has not seen what devices sent, nor announced the round."""
    link = _link(make(), channel)
    received, announced = carry(link, done.sent, csi, index), replace(done.broadcast, agreed=done.sent.agreed)
    try:
        update = aggregate(link, decode(link, received, announced, done.private, csi)[0], done.base_update)
    except (AttributeError, AirCompError) as error:
        raise AssertionError(f"decode reaches for what another verb left on the scheme: {_raised(error)}") from error
    if torch.equal(update, done.update):
        return
    again = communicate(_link(make(), channel), done.base_update, done.messages, memory, index)
    assert torch.equal(again.update, done.update), "equal seeds give another update"
    raise AssertionError("decode reaches for what another verb left on the scheme: on its own it gives another update")


def _check_hears(make: Callable[[], Scheme], base: Tensor, messages: Tensor, channel: Channel) -> None:
    """Decode noise in place of what was sent: only who remembers the messages then knows their mean."""
    scheme = make()
    link = _link(scheme, channel)
    done = communicate(link, base.clone(), messages, {}, 0)
    if done.sent.payload is not None or not scheme.uses_radio:
        return
    csi = sound(link, len(messages), done.broadcast, 0)
    heard = carry(link, done.sent, csi, 0)
    noise = torch.randn(heard.shape, generator=fixed_generator("nothing heard"), dtype=heard.dtype)
    noise = noise * heard.abs().square().mean().sqrt()
    announced = replace(done.broadcast, agreed=done.sent.agreed)
    heard_nothing = decode(link, noise, announced, done.private, csi)[0]
    update, mean = aggregate(link, heard_nothing, done.base_update), messages.mean(dim=0)
    alike = float(torch.nn.functional.cosine_similarity(update, mean, dim=0))
    # of unrelated vectors with so many entries the cosine is 0 ± 1/√2000 = .02
    assert alike < _KNOWN, (
        f"decode knows the messages without hearing them (cosine {alike:.2f}): something remembers them"
    )


# ── what arrives ─────────────────────────────────────────────────────────────────────────────────────────────────────


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


def _link(scheme: Scheme, channel: Channel) -> Link:
    return Link(scheme, channel, "sign-vote" if scheme.offers is Vote else "mean", readout="integers")


def _send(scheme: Scheme, base: Tensor, messages: Tensor, channel: Channel) -> Exchange:
    return communicate(_link(scheme, channel), base, messages, {}, 0)


def _check_form(exchange: Exchange, scheme: Scheme) -> None:
    assert exchange.update.shape == (_PARAMS,), (
        f"the update has shape {tuple(exchange.update.shape)}, expected [{_PARAMS}]"
    )
    assert torch.isfinite(exchange.update).all(), "the update is not finite"
    assert exchange.sent.reconstruction.shape == (_DEVICES, _PARAMS), "not every device knows what it sent"
    for name, value in exchange.memory.items():
        assert isinstance(value, Tensor), f"it remembers {name} as {type(value).__name__}, expected a tensor"
    if exchange.broadcast.num_uses and scheme.uses_radio:
        sent, announced = exchange.sent.signal.superpose(None)[0].numel(), exchange.broadcast.num_uses
        assert sent == announced, f"it announced {announced} channel uses and sent {sent}"


def _check_clean(exchange: Exchange, messages: Tensor, scheme: Scheme) -> None:
    if scheme.offers is Vote:
        agreed = ((messages > 0).all(dim=0) | (messages < 0).all(dim=0)) & exchange.sent.reconstruction.any(dim=0)
        right = exchange.update.sign() == messages[0].sign()
        assert right[agreed].all(), "without noise the vote is wrong where all devices agree"
        return
    truth = exchange.sent.reconstruction.mean(dim=0)
    error = float((exchange.update - truth).square().sum() / truth.square().sum())
    assert error < _LOST, f"without noise, {error:.2g} of the mean of what devices sent is wrong"


def _check_order(make: Callable[[], Scheme], base: Tensor, messages: Tensor, clean: Exchange, channel: Channel) -> None:
    turned = _send(make(), base, messages.flip(0), channel)
    before, after = clean.update, turned.update
    if isinstance(clean.output, Vote):  # where devices disagree, random phases may decide
        agreed = messages.sign().sum(dim=0).abs() == len(messages)
        before, after = before[agreed], after[agreed]
    error = float((after - before).square().sum() / before.square().sum())
    assert error < _LOST, "the order of the devices changes the update"


def _check_power(exchange: Exchange, scheme: Scheme) -> None:
    air = exchange.air
    if scheme.uses_radio and air.channel_uses:
        ratio = float(air.energy.mean()) / air.nominal_energy
        assert abs(ratio - 1) < TOLERANCE, f"devices spend {ratio:.3g} times the power that they are meant to"


def _check_agreement(make: Callable[[], Scheme], base: Tensor, messages: Tensor, channel: Channel) -> None:
    """Let attackers grow: what honest devices agree on stays as it was, and amplifiers hold attackers to their energy."""
    scheme, attack = make(), Attack(torch.arange(_DEVICES) == 0)
    grown = messages.clone()
    grown[0] *= 100
    link, both = _link(scheme, channel), []
    for sent in (messages, grown):
        both.append(communicate(_link(make(), channel), base.clone(), sent, {}, 0, attack))
    one, other = (each.sent.agreed for each in both)
    assert [*map(_listed, one.items())] == [*map(_listed, other.items())], (
        "what devices agree on follows the messages of attackers; take csi.as_reported of what enters it"
    )
    air = both[1].air
    if link.scheme.uses_radio and air.channel_uses:
        most = float(both[1].sent.signal.power * both[1].broadcast.num_uses) * (1 + TOLERANCE)
        spent = float(air.energy[0])
        assert spent <= most or air.nominal_energy == 0, f"an attacker spends {spent:.3g}, expected at most {most:.3g}"


def _listed(named: tuple[str, Tensor]) -> tuple[str, Any]:  # Any: a number, or a list of them
    return named[0], named[1].tolist()


def _check_silence(make: Callable[[], Scheme], base: Tensor, messages: Tensor, channel: Channel) -> None:
    scheme = make()
    if not scheme.uses_radio:
        return
    exchange = _send(scheme, base, messages, channel)
    assert float(exchange.air.energy[0]) == 0, "a silent device spends energy"
    assert not exchange.sent.reconstruction[0].any(), "a silent device believes that it sent something"
    if scheme.offers is not Vote:
        truth = exchange.sent.reconstruction[1:].mean(dim=0)
        error = float((exchange.update - truth).square().sum() / truth.square().sum())
        assert error < _LOST, f"with a silent device, {error:.2g} of the mean of the others is wrong"


def _check_edges(make: Callable[[], Scheme], base: Tensor, messages: Tensor, channel: Channel) -> None:
    for what, own, sent in (
        ("one device", base, messages[:1]),
        ("updates of zero", torch.zeros_like(base), torch.zeros_like(messages)),
        ("a base station that learnt nothing", torch.zeros_like(base), messages),
        ("tiny updates", 1e-12 * base, 1e-12 * messages),
    ):
        update = _send(make(), own, sent, channel).update
        assert torch.isfinite(update).all(), f"the update of {what} is not finite"
