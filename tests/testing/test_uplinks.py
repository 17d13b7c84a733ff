"""`check_uplink` finds what a scheme does wrong, and above all what reaches devices beside the broadcast."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import pytest
import torch

from aircomp.channel.signal import Symbols
from aircomp.schemes.base import Broadcast, Scheme, Sent, where_speaking
from aircomp.schemes.ideal import Ideal
from aircomp.schemes.outputs import Mean, Vectors
from aircomp.testing import check_uplink

USES = 20


class Honest(Scheme):
    """Uncoded messages in units of the base station's own update, and a slot of pilots."""

    name, offers = "honest", Mean

    def broadcast(self, base_update, memory, *, rng):
        uses = base_update.numel() + USES
        return Broadcast(base_update.numel(), uses, {"unit": base_update.square().mean().sqrt()}), base_update.sum()

    def unit(self, broadcast):
        return broadcast.values["unit"].clamp(min=1e-12)

    def encode(self, messages, broadcast, csi, *, rng):
        symbols = torch.cat([messages / self.unit(broadcast), torch.ones(len(messages), USES)], dim=1)
        loud = (symbols.shape[1] / symbols.square().sum(dim=1, keepdim=True)).sqrt() / USES**0.5
        signal = Symbols((loud * symbols).unflatten(1, (-1, USES)), power=1 / USES)
        return Sent(signal, where_speaking(messages, csi, USES), pilot_uses=USES)

    def decode(self, received, broadcast, private, csi):
        heard = received[0].real.flatten()
        amplitudes = heard[-USES:].mean().clamp(min=1e-6)
        mean = heard[:-USES] / amplitudes * self.unit(broadcast)
        return Mean(mean=mean, num_active_hat=float(amplitudes * USES**0.5)), {}


def test_an_honest_scheme_passes():
    check_uplink(Honest)


# ── the barrier ──────────────────────────────────────────────────────────────────────────────────────────────────────


class OfItself(Honest):
    """Devices take the unit from what `broadcast` stored on the scheme."""

    def broadcast(self, base_update, memory, *, rng):
        announced, private = super().broadcast(base_update, memory, rng=rng)
        self.exact_unit = announced.values["unit"].double()
        return Broadcast(announced.num_params, announced.num_uses), private

    def unit(self, broadcast):
        return self.exact_unit.float().clamp(min=1e-12)


class WithFallback(OfItself):
    """The same, where an object without it does not fail."""

    exact_unit = torch.ones(())


class Part:
    """Something with a place to store in."""

    stored = torch.ones(())


class InAPart(Honest):
    """Devices find it on a part of the scheme."""

    def __init__(self):
        self.part = Part()

    def broadcast(self, base_update, memory, *, rng):
        announced, private = super().broadcast(base_update, memory, rng=rng)
        self.part.stored = announced.values["unit"]
        return announced, private

    def encode(self, messages, broadcast, csi, *, rng):
        sent = super().encode(messages, broadcast, csi, rng=rng)
        return replace(sent, reconstruction=sent.reconstruction * (self.part.stored != 1))


class OnTheClass(Honest):
    """Devices find it on the class, which all objects share."""

    shared = torch.ones(())

    def broadcast(self, base_update, memory, *, rng):
        announced, private = super().broadcast(base_update, memory, rng=rng)
        OnTheClass.shared = announced.values["unit"]
        return replace(announced, values={}), private

    def encode(self, messages, broadcast, csi, *, rng):
        return super().encode(messages, replace(broadcast, values={"unit": OnTheClass.shared}), csi, rng=rng)

    def decode(self, received, broadcast, private, csi):
        return super().decode(received, replace(broadcast, values={"unit": OnTheClass.shared}), private, csi)


units = {}
"""What `ByContent` leaves in its module."""


class ByContent(Honest):
    """Devices find it in the module under what was broadcast, so that no other round takes its place."""

    def broadcast(self, base_update, memory, *, rng):
        announced, private = super().broadcast(base_update, memory, rng=rng)
        known = replace(announced, values={"sum": base_update.sum()})
        units[known.wire] = announced.values["unit"]
        return known, private

    def unit(self, broadcast):
        return units[broadcast.wire]

    def decode(self, received, broadcast, private, csi):
        return super().decode(received, replace(broadcast, agreed={}), private, csi)


class OfTheFirst(Honest):
    """Devices take that of the first round there ever was."""

    seen: ClassVar[list] = []

    def broadcast(self, base_update, memory, *, rng):
        announced, private = super().broadcast(base_update, memory, rng=rng)
        self.seen.append(announced.values["unit"])
        return replace(announced, values={}), private

    def unit(self, broadcast):
        return next(iter(self.seen), torch.ones(()))


def in_a_closure():
    seen = {}

    class InAClosure(OfTheFirst):
        """Devices find it in the function around the class."""

        def broadcast(self, base_update, memory, *, rng):
            announced, private = Honest.broadcast(self, base_update, memory, rng=rng)
            seen.setdefault("unit", announced.values["unit"])
            return replace(announced, values={}), private

        def unit(self, broadcast):
            return seen.get("unit", torch.ones(()))

    return InAClosure


@pytest.mark.parametrize(
    ("cheating", "found"),
    [
        (OfItself, r"encode reaches for more than the broadcast \(broadcast left self\.exact_unit on the scheme\)"),
        (WithFallback, r"encode reaches for more than .*left self\.exact_unit on the scheme\): from its wire form"),
        (InAPart, r"encode reaches for more than the broadcast \(broadcast left self\.part\.stored on the scheme\)"),
        (OnTheClass, "encode knows more than the broadcast .* in a process of its own it sends other signals"),
        (ByContent, "encode knows more than the broadcast .* it fails: .*ByContent.encode raised KeyError"),
        (OfTheFirst, "encode knows more than the broadcast .* it sends other signals"),
        (in_a_closure(), "encode knows more than the broadcast .* it sends other signals"),
    ],
)
def test_what_broadcast_leaves_behind_does_not_reach_devices_and_is_named(cheating, found):
    with pytest.raises(AssertionError, match=found):
        check_uplink(cheating)


def test_a_scheme_that_stores_what_encode_does_not_use_passes():
    class Counting(Honest):
        def broadcast(self, base_update, memory, *, rng):
            self.rounds = 1
            return super().broadcast(base_update, memory, rng=rng)

    check_uplink(Counting)


def test_one_object_for_devices_and_base_station_is_refused():
    shared = OfItself()
    with pytest.raises(AssertionError, match="make returned one object twice"):
        check_uplink(lambda: shared)


@dataclass(frozen=True)
class Wider(Broadcast):
    """A broadcast with a field that has no wire form."""

    hint: object = None


def test_a_field_that_does_not_travel_is_named():
    class Hinting(Honest):
        def broadcast(self, base_update, memory, *, rng):
            announced, private = super().broadcast(base_update, memory, rng=rng)
            return Wider(announced.num_params, announced.num_uses, announced.values, hint=base_update), private

        def encode(self, messages, broadcast, csi, *, rng):
            return super().encode(messages + broadcast.hint, broadcast, csi, rng=rng)

    with pytest.raises(AssertionError, match="reaches for 'hint', which did not travel"):
        check_uplink(Hinting)


def test_what_is_agreed_on_beside_the_broadcast_does_not_reach_devices_before_they_send():
    class Agreeing(Honest):
        def broadcast(self, base_update, memory, *, rng):
            announced, private = super().broadcast(base_update, memory, rng=rng)
            return replace(announced, agreed={"unit": announced.values["unit"]}, values={}), private

        def unit(self, broadcast):
            return broadcast.agreed["unit"]

    with pytest.raises(AssertionError, match=r"Agreeing.encode raised KeyError: .unit"):  # already in a run
        check_uplink(Agreeing)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1.0, 2.0], "'plan', which is list and cannot be sent"),
        (torch.ones(2) + 0j, r"'plan', which is torch\.complex64 and cannot be sent"),
        (lambda: 3, "'plan', which is function and cannot be sent"),
    ],
)
def test_a_broadcast_that_cannot_travel_is_refused_by_a_sentence_that_names_the_value(value, said):
    class Unsendable(Honest):
        def broadcast(self, base_update, memory, *, rng):
            announced, private = super().broadcast(base_update, memory, rng=rng)
            return replace(announced, values={**announced.values, "plan": value}), private

    with pytest.raises(AssertionError, match=said) as caught:
        check_uplink(Unsendable)
    assert "\n" not in str(caught.value)


def test_a_broadcast_without_what_the_base_station_keeps_is_refused():
    class Alone(Honest):
        def broadcast(self, base_update, memory, *, rng):
            return super().broadcast(base_update, memory, rng=rng)[0]

    with pytest.raises(AssertionError, match="broadcast returned Broadcast, expected"):
        check_uplink(Alone)


class Measuring(Honest):
    """Devices tell the base station how many they are, beside the radio."""

    def encode(self, messages, broadcast, csi, *, rng):
        sent = super().encode(messages, broadcast, csi, rng=rng)
        return replace(sent, agreed={"devices": torch.tensor(len(messages))})


def test_what_is_agreed_on_has_a_declared_price():
    with pytest.raises(AssertionError, match=r"agree on 'devices' .* side_information does not say what that takes"):
        check_uplink(Measuring)

    class Declared(Measuring):
        side_information = ("how many devices send",)

    check_uplink(Declared)


def test_a_payload_has_a_declared_price():
    class Handing(Honest):
        def encode(self, messages, broadcast, csi, *, rng):
            return replace(super().encode(messages, broadcast, csi, rng=rng), payload=messages)

        def decode(self, received, broadcast, private, csi):
            return Mean(mean=received.mean(0), num_active_hat=float(len(received))), {}

    with pytest.raises(AssertionError, match="payload arrives without error, and side_information does not say so"):
        check_uplink(Handing)


class Whispering(Honest):
    """The base station finds the devices' messages on the scheme."""

    def encode(self, messages, broadcast, csi, *, rng):
        self.truth = messages.mean(dim=0)
        return super().encode(messages, broadcast, csi, rng=rng)

    def decode(self, received, broadcast, private, csi):
        return Mean(mean=self.truth, num_active_hat=6.0), {}


class WhisperingSoftly(Whispering):
    """The same, where an object without it does not fail."""

    truth = torch.zeros(2000)


@pytest.mark.parametrize("cheating", [Whispering, WhisperingSoftly])
def test_what_encode_leaves_behind_does_not_reach_the_base_station(cheating):
    with pytest.raises(AssertionError, match="decode reaches for what another verb left on the scheme"):
        check_uplink(cheating)


def test_a_scheme_that_draws_beside_its_generator_is_found():
    class Restless(Honest):
        def encode(self, messages, broadcast, csi, *, rng):
            noise = torch.rand(len(messages), 1, generator=seeds)
            return super().encode(messages * (1 + 1e-3 * noise), broadcast, csi, rng=rng)

    seeds = torch.Generator().manual_seed(0)
    with pytest.raises(AssertionError, match="equal seeds give other signals"):
        check_uplink(Restless)


def test_messages_that_are_changed_in_place_are_found():
    class Scaling(Honest):
        def encode(self, messages, broadcast, csi, *, rng):
            return super().encode(messages.mul_(2.0), broadcast, csi, rng=rng)

    with pytest.raises(AssertionError, match=r"Scaling.encode wrote into the torch.float32 .* that it was given"):
        check_uplink(Scaling)


# ── memories ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache
def cached():
    return {}


def attributed(new=None):
    attributed.kept = {**getattr(attributed, "kept", {}), **(new or {})}
    return attributed.kept


def by_default(new=None, kept={}):  # noqa: B006  the fault
    kept.update(new or {})
    return kept


def enclosed():
    kept = {}

    def recall(new=None):
        nonlocal kept
        kept = {**kept, **(new or {})}
        return kept

    return recall


class Elsewhere:
    """A class that no scheme is made of."""

    kept: ClassVar[dict] = {}


deep = {"kept": {}}
"""What lies deeper in a module than its names."""


def updated(kept, new):
    kept.update(new or {})
    return kept


MEMORIES = {
    "a cache": lambda new=None: updated(cached(), new),
    "an attribute of a function": attributed,
    "a default argument": by_default,
    "a closure": enclosed(),
    "an attribute of a class": lambda new=None: updated(Elsewhere.kept, new),
    "a global": lambda new=None: updated(deep["kept"], new),
}


@pytest.mark.parametrize("where", list(MEMORIES))
def test_messages_that_encode_leaves_to_decode_are_found(where):
    recall = MEMORIES[where]

    class Telling(Honest):
        """The base station cleans what it heard by what it should not know, where that fits."""

        def encode(self, messages, broadcast, csi, *, rng):
            recall({"mean": messages.mean(dim=0)})
            return super().encode(messages, broadcast, csi, rng=rng)

        def decode(self, received, broadcast, private, csi):
            output, memory = super().decode(received, broadcast, private, csi)
            known = recall().get("mean", output.mean)
            fits = torch.nn.functional.cosine_similarity(known, output.mean, dim=0) > 0.5
            return (replace(output, mean=known) if fits else output), memory

    with pytest.raises(AssertionError, match=r"decode knows more than what it hears .* it gives another update"):
        check_uplink(Telling)


@pytest.mark.parametrize("where", list(MEMORIES))
def test_messages_that_encode_keeps_from_round_to_round_are_found(where):
    recall = MEMORIES[where]

    class Keeping(Honest):
        """A device adds what another round sent less."""

        def encode(self, messages, broadcast, csi, *, rng):
            left = recall().get("left", {}).get(messages.shape, torch.zeros_like(messages))
            recall({"left": {messages.shape: 1e-3 * messages}})
            return super().encode(messages + left, broadcast, csi, rng=rng)

    with pytest.raises(
        AssertionError, match=r"encode knows more than|equal seeds give other signals|encode reaches for"
    ):
        check_uplink(Keeping)


def test_a_check_leaves_nothing_to_the_next_one():
    for _ in range(2):
        test_messages_that_encode_leaves_to_decode_are_found("a cache")


# ── what arrives ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Biased(Ideal):
    def decode(self, received, broadcast, private, csi):
        return Vectors(vectors=1.1 * received.values[:, 0], num_active_hat=1.0), {}


class Ordered(Ideal):
    def decode(self, received, broadcast, private, csi):
        return Vectors(vectors=received.values[:1, 0], num_active_hat=1.0), {}


@pytest.mark.parametrize("broken", [Biased, Ordered])
def test_uplinks_that_change_the_mean_fail(broken):
    with pytest.raises(AssertionError, match="of the mean of what devices sent is wrong"):
        check_uplink(broken)


def test_an_uplink_that_spends_more_than_it_says_fails():
    class Loud(Honest):
        def encode(self, messages, broadcast, csi, *, rng):
            sent = super().encode(messages, broadcast, csi, rng=rng)
            return replace(sent, signal=Symbols(2 * sent.signal.values, sent.signal.power))

        def decode(self, received, broadcast, private, csi):
            return super().decode(received / 2, broadcast, private, csi)

    with pytest.raises(AssertionError, match="spend 4 times the power"):
        check_uplink(Loud)


def test_an_uplink_whose_silent_devices_believe_to_have_sent_fails():
    class Careless(Honest):
        def encode(self, messages, broadcast, csi, *, rng):
            return replace(super().encode(messages, broadcast, csi, rng=rng), reconstruction=messages)

    with pytest.raises(AssertionError, match="believes that it sent something"):
        check_uplink(Careless)
