"""Kinds of objects × kinds of misbehaviour: each pair ends in one sentence that names the object."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import aircomp
from aircomp.channel.awgn import Awgn
from aircomp.common.boundary import ask, check_returned, is_own, name_of
from aircomp.errors import AirCompError, one_line
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.digital.link import Digital
from aircomp.schemes.digital.simple import Nnls  # noqa: F401  enters itself
from aircomp.schemes.ideal import Ideal
from aircomp.schemes.settings import SchemeSettings
from helpers.draws import seeded

NAN = float("nan")
UPDATES = torch.randn(4, 400, generator=seeded(1))


def broken(tensor: torch.Tensor, value: float) -> torch.Tensor:
    """Return a copy of a tensor whose first number is another one."""
    found = tensor.clone()
    found.view(-1)[0] = value
    return found


def scribbled(tensor: torch.Tensor) -> torch.Tensor:
    """Write into a tensor behind torch's back, and return it."""
    tensor.numpy().reshape(-1)[0] += 1.0
    return tensor


class Unprintable:
    """Something of which nobody can say what it is."""

    def __repr__(self) -> str:
        raise ValueError("no repr")


# ── decoders ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class OwnDecoder:
    """A decoder that is right but for what `spoil` does to its input or its result."""

    def __init__(self, spoil: Callable[[torch.Tensor, Any], Any]):
        self.codebook = aircomp.make_codebook("gaussian", 16, 8, rng=seeded(0))
        self.right, self.spoil = aircomp.make_decoder("nnls", self.codebook), spoil

    def decode(self, received, popularity, **known):
        return self.spoil(received, self.right.decode(received.clone(), popularity, num_active=known.get("num_active")))


def raises(*given: Any) -> Any:
    raise ValueError("not today")


def leaves(*given: Any) -> Any:
    raise SystemExit(0)


DECODERS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "raises": (raises, "OwnDecoder.decode raised ValueError: not today"),
    "leaves": (leaves, "OwnDecoder.decode raised SystemExit: 0"),
    "None": (lambda received, found: None, "what the decoder returned is None; expected an aircomp.Decoded"),
    "negative mean": (lambda r, d: replace(d, mean=broken(d.mean, -1.0)), "mean holds negative values"),
    "mean NaN": (lambda r, d: replace(d, mean=broken(d.mean, NAN)), "mean holds values that are not finite"),
    "mean None": (lambda r, d: replace(d, mean=None), "mean is None; expected a tensor of float numbers"),
    "mean of whole numbers": (
        lambda r, d: replace(d, mean=d.counts),
        r"mean is torch.int.*; expected a tensor of float",
    ),
    "negative counts": (lambda r, d: replace(d, counts=broken(d.counts, -1)), "counts holds negative values"),
    "counts transposed": (lambda r, d: replace(d, counts=d.counts.T), "counts is .*slots = .*, codewords = 16"),
    "counts None": (lambda r, d: replace(d, counts=None), "counts is None"),
    "short noise": (
        lambda r, d: replace(d, noise_var=d.noise_var[:-1]),
        r"noise_var is torch.float32 .*expected .*slots = ",
    ),
    "noise NaN": (
        lambda r, d: replace(d, noise_var=broken(d.noise_var, NAN)),
        "noise_var holds values that are not finite",
    ),
    "negative noise": (lambda r, d: replace(d, noise_var=-d.noise_var - 1), "noise_var holds negative values"),
    "noise as a number": (lambda r, d: replace(d, noise_var=0.1), "noise_var is 0.1; expected a tensor"),
    "devices None": (lambda r, d: replace(d, num_active_hat=None), "num_active_hat is None; expected a finite number"),
    "devices NaN": (lambda r, d: replace(d, num_active_hat=NAN), "num_active_hat is nan; expected a finite number"),
    "negative devices": (
        lambda r, d: replace(d, num_active_hat=-1.0),
        "num_active_hat is -1.0; expected .* of at least 0",
    ),
    "negative error": (lambda r, d: replace(d, num_active_error=-1.0), "num_active_error is -1.0"),
    "writes": (lambda r, d: (r.mul_(2), d)[1], r"OwnDecoder.decode wrote into the torch.float32 \["),
    "writes by NumPy": (lambda r, d: (scribbled(r), d)[1], r"OwnDecoder.decode wrote into the torch.float32 \["),
}


def send_with_decoder(spoil: Callable[..., Any]) -> Any:
    settings: dict[str, Any] = {"uplink.quantize.num_codewords": 16, "uplink.codeword_length": 8}
    return aircomp.simulate("digits", decoder=OwnDecoder(spoil), rounds=1, engine="serial", **settings)


# ── schemes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class OwnScheme(Ideal):
    """The ideal uplink, but for one verb."""

    def __init__(self, verb: str, spoil: Callable[..., Any]):
        super().__init__(SchemeSettings(), SchemeContext())
        self.verb, self.spoil = verb, spoil

    def _spoilt(self, verb: str, given: Any, found: Any) -> Any:
        return self.spoil(given, found) if verb == self.verb else found

    def broadcast(self, base_update, memory, *, rng):
        return self._spoilt("broadcast", base_update, super().broadcast(base_update, memory, rng=rng))

    def encode(self, messages, broadcast, csi, *, rng):
        return self._spoilt("encode", messages, super().encode(messages, broadcast, csi, rng=rng))

    def decode(self, received, broadcast, private, csi):
        return self._spoilt("decode", received, super().decode(received, broadcast, private, csi))

    def diagnose(self, sent, broadcast, output):
        return self._spoilt("diagnose", sent.reconstruction, {"seen": 1.0})


def of_first(change: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Spoil the first of a pair."""
    return lambda given, found: (change(found[0]), found[1])


SCHEMES: dict[tuple[str, str], tuple[Callable[[Any, Any], Any], str]] = {
    **{
        (verb, "raises"): (raises, f"OwnScheme.{verb} raised ValueError: not today")
        for verb in ("broadcast", "encode", "decode", "diagnose")
    },
    **{
        (verb, "writes"): (
            lambda given, found: (given.add_(1), found)[1],
            f"OwnScheme.{verb} wrote into the torch.float32",
        )
        for verb in ("broadcast", "encode", "diagnose")
    },
    **{
        (verb, "None"): (lambda given, found: None, said)
        for verb, said in {
            "broadcast": "what the scheme's broadcast returned is None",
            "encode": "what the scheme's encode returned is None",
            "decode": "OwnScheme.decode returned None",
            "diagnose": "OwnScheme.diagnose returned is None; expected values by name",
        }.items()
    },
    ("broadcast", "length"): (of_first(lambda b: replace(b, num_params=3)), "broadcast for 3 parameters; expected 400"),
    ("broadcast", "uses"): (
        of_first(lambda b: replace(b, num_uses=-1)),
        "num_uses is -1; expected a whole number of at least 0",
    ),
    ("broadcast", "list"): (
        of_first(lambda b: replace(b, values={"a": [1.0]})),
        r"values\['a'\] is the list \[1.0\]; expected a tensor",
    ),
    ("encode", "NaN"): (
        lambda given, sent: replace(sent, reconstruction=broken(sent.reconstruction, NAN)),
        "reconstruction holds values that are not finite",
    ),
    ("encode", "length"): (
        lambda given, sent: replace(sent, reconstruction=sent.reconstruction[:, 1:]),
        r"reconstruction is torch.float32 \[4, 399\]; expected .*params = 400",
    ),
    ("encode", "part of the signal"): (
        lambda given, sent: replace(sent, signal=replace(sent.signal, values="loud")),
        "returned.signal.values is the str 'loud'; expected a tensor",
    ),
    ("encode", "NaN in the signal"): (
        lambda given, sent: replace(sent, signal=replace(sent.signal, values=sent.signal.values * NAN)),
        "returned.signal.values holds values that are not finite",
    ),
    ("broadcast", "endless"): (
        of_first(lambda b: replace(b, num_uses=10**30)),
        "num_uses is 1000000000000000000000000000000; expected a whole number",
    ),
    ("encode", "amplitude"): (
        lambda given, sent: replace(sent, amplitude=0.5),
        "returned amplitude = 0.5; expected None",
    ),
    ("encode", "signal"): (lambda given, sent: replace(sent, signal=None), "signal is None; expected an object with"),
    ("decode", "memory"): (
        lambda given, found: (found[0], None),
        "OwnScheme.decode returned is None; expected values by name",
    ),
    ("decode", "memory of numbers"): (
        lambda given, found: (found[0], {"a": 1.0}),
        r"returned\['a'\] is 1.0; expected a tensor",
    ),
    ("decode", "devices NaN"): (of_first(lambda o: replace(o, num_active_hat=NAN)), "num_active_hat is nan"),
    ("decode", "devices negative"): (of_first(lambda o: replace(o, num_active_hat=-2.0)), "num_active_hat is -2.0"),
    ("decode", "NaN"): (
        of_first(lambda o: replace(o, vectors=broken(o.vectors, NAN))),
        "vectors holds values that are not",
    ),
    ("decode", "length"): (
        of_first(lambda o: replace(o, vectors=o.vectors[:, 1:])),
        r"vectors is .*\[4, 399\]; expected",
    ),
    ("diagnose", "words"): (
        lambda given, found: {"seen": "much"},
        r"\['seen'\] is the str 'much'; expected a finite number",
    ),
}


def send_with_scheme(verb: str, spoil: Callable[..., Any]) -> Any:
    link = aircomp.Link(OwnScheme(verb, spoil), Awgn(5.0))
    return aircomp.link.diagnose(link, link.send(UPDATES.clone(), base=UPDATES[0].clone()))


# ── channels, rules ──────────────────────────────────────────────────────────────────────────────────────────────────


class OwnChannel:
    """White noise, but for one verb."""

    def __init__(self, verb: str, spoil: Callable[..., Any]):
        self.right, self.verb, self.spoil = Awgn(5.0), verb, spoil

    def sound(self, num_devices, num_uses, *, rng):
        found = self.right.sound(num_devices, num_uses, rng=rng)
        return self.spoil(None, found) if self.verb == "sound" else found

    def carry(self, signal, csi, *, rng):
        found = self.right.carry(signal, csi, rng=rng)
        return self.spoil(signal, found) if self.verb == "carry" else found


CHANNELS: dict[tuple[str, str], tuple[Callable[[Any, Any], Any], str]] = {
    ("sound", "raises"): (raises, "OwnChannel.sound raised ValueError: not today"),
    ("carry", "raises"): (raises, "OwnChannel.carry raised ValueError: not today"),
    ("sound", "None"): (lambda given, csi: None, "OwnChannel.sound returned is None; expected an object of Csi"),
    ("carry", "None"): (lambda given, heard: None, "OwnChannel.carry returned is None; expected a tensor"),
    ("carry", "NaN"): (
        lambda given, heard: broken(heard, NAN),
        "OwnChannel.carry returned holds values that are not finite",
    ),
    ("carry", "sparse"): (lambda given, heard: heard.to_sparse(), r"\[1, .*\] of torch.sparse_coo; expected a tensor"),
    ("carry", "meta"): (lambda given, heard: heard.to("meta"), r"\[1, .*\] on meta; expected a tensor"),
    ("carry", "unprintable"): (lambda given, heard: Unprintable(), "returned is the Unprintable; expected a tensor"),
    ("carry", "one axis"): (
        lambda given, heard: heard.flatten(),
        r"carry returned is .*; expected a tensor of inexact numbers",
    ),
    ("carry", "writes"): (
        lambda signal, heard: (signal.codebook.add_(1), heard)[1],
        "OwnChannel.carry wrote into the torch.float32",
    ),
}
RULES: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "raises": (raises, "raises raised ValueError: not today"),
    "None": (lambda counts, codewords: None, "<lambda> returned is None; expected a tensor of float numbers"),
    "NaN": (
        lambda counts, codewords: (counts.float() @ codewords) * NAN,
        "<lambda> returned holds values that are not finite",
    ),
    "length": (lambda counts, codewords: codewords, r"<lambda> returned is .*; expected .*slots = "),
    "writes": (lambda counts, codewords: counts.zero_().float() @ codewords, r"<lambda> wrote into the torch.int"),
}


# ── training ─────────────────────────────────────────────────────────────────────────────────────────────────────────

TABLE = TensorDataset(torch.randn(8, 3, generator=seeded(2)), torch.randn(8, 1, generator=seeded(3)))


class OwnModel(nn.Module):
    """A linear one, but for what `spoil` does where it is tested."""

    def __init__(self, spoil: Callable[..., Any] | None = None):
        super().__init__()
        self.linear, self.spoil = nn.Linear(3, 1), spoil

    def forward(self, inputs):
        found = self.linear(inputs)
        return found if self.spoil is None or torch.is_grad_enabled() else self.spoil(inputs, found)


def train_with(**parts: Any) -> Any:
    given = {"model": OwnModel(), "loss": nn.functional.mse_loss, "rounds": 1, "test": TABLE} | parts
    link = aircomp.Link("ideal", Awgn(5.0))
    return aircomp.federate(given.pop("model"), [TABLE] * 3, link, **given)


def only_in_tests(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loss that is right while devices train."""
    return lambda outputs, targets: (
        nn.functional.mse_loss(outputs, targets) if torch.is_grad_enabled() else function(outputs, targets)
    )


TRAINING: dict[str, tuple[dict[str, Any], str]] = {
    "loss raises": ({"loss": raises}, "raises fails on its outputs .* not today"),
    "loss raises in tests": (
        {"loss": only_in_tests(raises)},
        "testing before round 1: .*<lambda> raised ValueError: not today",
    ),
    "loss None": ({"loss": lambda outputs, targets: None}, "<lambda> returned None; expected one number"),
    "loss NaN": ({"loss": lambda o, t: (o - t).sum() * 0 + NAN, "test": None}, "round 1 is n(ot finite|an)"),
    "loss NaN in tests": (
        {"loss": only_in_tests(lambda o, t: torch.tensor(NAN))},
        "testing before round 1: the loss is not a number",
    ),
    "loss writes": (
        {"loss": only_in_tests(lambda o, t: o.sub_(t).square().mean())},
        "<lambda> wrote into the torch.float32",
    ),
    "step raises": ({"loss": None, "step": raises}, "raises fails on a batch .* not today"),
    "step None": ({"loss": None, "step": lambda model, batch: None}, "<lambda> returned None; expected one number"),
    "model raises in tests": (
        {"model": OwnModel(raises)},
        "testing before round 1: .*OwnModel raised ValueError: not today",
    ),
    "model None": ({"model": OwnModel(lambda i, o: None)}, "testing before round 1: .*mse_loss raised"),
    "model of torch.jit": (
        {"model": torch.jit.trace(nn.Linear(3, 1), torch.ones(1, 3), check_trace=False)},
        "is compiled by torch.jit",
    ),
    "metric raises": (
        {"metrics": {"m": raises}},
        "the metric 'm' failed after round 1: .*raises raised ValueError: not today",
    ),
    "metric NaN": (
        {"metrics": {"m": lambda o, t: NAN}},
        "the metric 'm' returned nan after round 1; expected a finite number",
    ),
    "metric None": (
        {"metrics": {"m": lambda o, t: None}},
        "the metric 'm' returned None after round 1; expected one number",
    ),
    "before raises": ({"before": raises}, "raises raised ValueError: not today"),
    "before NaN": ({"before": lambda update: update * NAN}, "before returned values that are not finite"),
    "before meta": ({"before": lambda update: update.to("meta")}, r"before returned .* on meta for"),
    "before sparse": ({"before": lambda update: update.to_sparse()}, r"before returned .* of torch.sparse_coo for"),
    "metric unprintable": ({"metrics": {"m": lambda o, t: Unprintable()}}, "returned the Unprintable after round 1"),
    "before writes": ({"before": lambda update: update.mul_(2)}, "<lambda> wrote into the torch.float32"),
    "after None": ({"after": lambda update: None}, "after returned None"),
    "after writes": ({"after": lambda update: update.mul_(2)}, "<lambda> wrote into the torch.float32"),
}

CASES: dict[str, tuple[Callable[[], Any], str]] = {
    **{f"decoder {how}": (lambda s=spoil: send_with_decoder(s), said) for how, (spoil, said) in DECODERS.items()},
    **{
        f"scheme {verb} {how}": (lambda v=verb, s=spoil: send_with_scheme(v, s), said)
        for (verb, how), (spoil, said) in SCHEMES.items()
    },
    **{
        f"channel {verb} {how}": (lambda v=verb, s=spoil: aircomp.Link("gamp", OwnChannel(v, s)).send(UPDATES), said)
        for (verb, how), (spoil, said) in CHANNELS.items()
    },
    **{
        f"rule {how}": (lambda r=rule: aircomp.Link("perfect", Awgn(5.0), r).send(UPDATES), said)
        for how, (rule, said) in RULES.items()
    },
    **{f"training {how}": (lambda p=parts: train_with(**p), said) for how, (parts, said) in TRAINING.items()},
}


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize("how", CASES)
def test_what_an_own_object_does_wrong_is_one_sentence_that_names_it(how):
    call, said = CASES[how]
    with pytest.raises(AirCompError, match=said) as caught:
        call()
    assert str(caught.value) == one_line(str(caught.value))


@pytest.mark.usefixtures("as_in_production")
def test_objects_that_behave_pass():
    assert send_with_decoder(lambda received, found: found).row["rounds"] == 1
    assert send_with_scheme("none", raises) == {"seen": 1.0}
    assert aircomp.Link("gamp", OwnChannel("none", raises)).send(UPDATES).nmse < 2
    assert train_with(metrics={"r2": aircomp.metrics.r2}, before=torch.clone).row["rounds"] == 1


def test_what_a_user_raised_is_logged_where_asked(caplog):
    with caplog.at_level(logging.DEBUG, "aircomp"), pytest.raises(AirCompError) as caught:
        ask(raises)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "in raises" in caplog.text


def test_a_lack_of_memory_is_nobodys_mistake():
    def hungry() -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        ask(hungry)


def test_objects_of_this_package_are_called_as_they_are():
    received = torch.zeros(2, 4)
    ours = aircomp.make_decoder("nnls", torch.eye(4))
    assert not is_own(ours.decode)
    assert not is_own(Digital)
    assert is_own(raises)
    assert ask(ours.decode, received, torch.ones(4)).num_active_hat == 0
    check_returned(ours.decode, None, int)  # not looked at


def test_methods_are_named_with_the_class_of_their_object():
    assert name_of(OwnDecoder(raises).decode).endswith("test_boundary.OwnDecoder.decode")


def test_an_infinite_test_loss_is_kept_and_says_nothing_of_stability():
    run = train_with(loss=only_in_tests(lambda outputs, targets: torch.tensor(float("inf"))), rounds=2)
    assert (run.row["test_loss"], run.row["stability"]) == (float("inf"), None)
