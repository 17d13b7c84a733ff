"""Objects of a user's own that do one thing wrong: they raise, write into what they are given, or return something odd."""

import copy
import dataclasses
import random
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from fuzz_calls import NAN, odd
from fuzz_case import Case
from torch import nn
from torch.utils.data import TensorDataset

RAISED: list[BaseException] = [
    ValueError("not today"),
    ValueError(""),
    ValueError("two\nlines \udcff"),
    KeyError("x"),
    RuntimeError("x" * 10_000),
    ZeroDivisionError(),
    StopIteration(),
    SystemExit(0),
    OSError(28, "No space left on device"),
    AssertionError(),
    NotImplementedError(),
    RecursionError(),
]


class Unprintable:
    """Something of which nobody can say what it is."""

    def __repr__(self) -> str:
        raise ValueError("no repr")


class Own:
    """An object that hands every call on, but for one method, which is spoilt."""

    def __init__(self, right: Any, method: str, spoil: Callable[..., Any]):
        self._right, self._method, self._spoil = right, method, spoil

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_right", "_method", "_spoil"):
            raise AttributeError(name)
        found = getattr(self._right, name)
        if not callable(found) or isinstance(found, type):
            return found
        return spoilt(found, self._spoil if name == self._method else lambda given, right: right())


def spoilt(function: Callable[..., Any], spoil: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose input or result is spoilt."""

    def wrong(*given: Any, **named: Any) -> Any:
        return spoil(given, lambda: function(*given, **named))

    return wrong


def spoiling(rng: random.Random) -> tuple[Callable[..., Any], str]:
    """Choose what goes wrong, and say it."""
    seed = rng.randrange(2**32)
    how = rng.choice(["raise", "write", "change", "change", "change", "late"])

    def spoil(given: Any, right: Callable[[], Any]) -> Any:
        own = random.Random(seed)  # the same at every call
        if how == "raise":
            raise own.choice(RAISED)
        if how == "write":
            for value in given:
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    value.detach().mul_(own.choice([0.5, NAN, 1e30]))
            return right()
        found = right()
        spoil.calls += 1  # pyright: ignore[reportFunctionMemberAccess]
        late = how == "late" and spoil.calls < 3  # pyright: ignore[reportFunctionMemberAccess]
        return found if late else changed(own, found)

    spoil.calls = 0  # pyright: ignore[reportFunctionMemberAccess]
    return spoil, f"{how} {seed}"


def changed(rng: random.Random, value: Any) -> Any:
    """Return a value with something else in its place, or in that of one of its parts."""
    if rng.random() < 0.2:
        return rng.choice([odd(rng), Unprintable(), None])
    if isinstance(value, torch.Tensor):
        return changed_tensor(rng, value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        field = rng.choice([field.name for field in dataclasses.fields(value) if field.init])
        try:
            return dataclasses.replace(value, **{field: changed(rng, getattr(value, field))})
        except Exception:  # it refuses such a field itself
            found = copy.copy(value)
            object.__setattr__(found, field, odd(rng))
            return found
    if isinstance(value, tuple | list) and value:
        place = rng.randrange(len(value))
        parts = [changed(rng, part) if i == place else part for i, part in enumerate(value)]
        return type(value)(parts) if type(value) in (tuple, list) else parts
    if isinstance(value, dict):
        return value | {rng.choice([*value, "new", 1, "\udcff"]): odd(rng)}
    return odd(rng)


def changed_tensor(rng: random.Random, value: torch.Tensor) -> torch.Tensor:
    """Return a tensor of other numbers, of another shape, or of another type."""
    value = value.detach().clone()
    match rng.randrange(9):
        case 0 if value.is_floating_point() and value.numel():
            value.view(-1)[rng.randrange(value.numel())] = rng.choice([NAN, float("inf"), -1.0, 3e38, -3e38, 1e-45])
        case 1:
            return value.flatten()
        case 2:
            return value[..., :-1] if value.ndim else value[None]
        case 3:
            return value.T if value.ndim == 2 else value[None]
        case 4:
            return value.to(rng.choice([torch.float64, torch.float16, torch.int64, torch.complex64, torch.bool]))
        case 5:
            return -value if value.dtype != torch.bool else ~value
        case 6:
            return value.to("meta")
        case 7:
            return value.to_sparse() if value.ndim else value
        case _:
            return value * 0
    return value


@cache
def _parts() -> dict[str, Callable[[Callable[..., Any]], object]]:
    """Return every kind of own object with a call that uses it, spoilt."""
    import aircomp
    from aircomp.schemes.base import SchemeContext
    from aircomp.schemes.digital.simple import Nnls  # noqa: F401  enters itself
    from aircomp.schemes.registry import make_scheme
    from aircomp.schemes.settings import SchemeSettings

    seeded = torch.Generator().manual_seed(0)
    updates = torch.randn(4, 200, generator=seeded)
    table = TensorDataset(torch.randn(8, 3, generator=seeded), torch.randn(8, 1, generator=seeded))
    codebook = aircomp.make_codebook("gaussian", 16, 8, rng=seeded)
    small = {"devices.total": 4, "participation.low": 1, "participation.high": 2, "model.width": 2, "local.epochs": 1}
    small |= {"uplink.quantize.num_codewords": 16, "uplink.codeword_length": 8}
    found: dict[str, Callable[[Callable[..., Any]], object]] = {}

    def link(scheme: Any = "perfect", channel: Any = None, rule: Any = None) -> aircomp.Link:
        return aircomp.Link(scheme, channel or aircomp.Awgn(5.0), *([rule] if rule else []))

    def send(over: aircomp.Link) -> object:
        sent = over.send(updates.clone(), base=updates[0].clone())
        over.send(updates.clone(), base=updates[0].clone())  # with the memory of the first
        assert torch.isfinite(sent.update).all(), "an update that is not finite"
        return sent

    def decoder(spoil: Callable[..., Any]) -> object:
        own = Own(aircomp.make_decoder("nnls", codebook), "decode", spoil)
        return aircomp.simulate("digits", decoder=own, rounds=1, engine="serial", **small)

    found["decoder"] = decoder
    for name in ("ideal", "analog", "perfect", "obda", "gamp"):
        for verb in ("broadcast", "encode", "decode", "diagnose"):

            def scheme(spoil: Callable[..., Any], name: str = name, verb: str = verb) -> object:
                right = make_scheme(SchemeSettings.parse({"name": name}), SchemeContext())
                return send(link(Own(right, verb, spoil)))

            found[f"{name}.{verb}"] = scheme
    for verb in ("sound", "carry"):
        for used in ("gamp", "analog"):

            def channel(spoil: Callable[..., Any], verb: str = verb, used: str = used) -> object:
                return send(link(used, Own(aircomp.Awgn(5.0), verb, spoil)))

            found[f"channel.{verb} of {used}"] = channel

    def rule(spoil: Callable[..., Any]) -> object:
        return send(link(rule=spoilt(lambda counts, codewords: counts.float() @ codewords, spoil)))

    found["rule"] = rule

    def train(**own: Any) -> object:
        given = {"model": nn.Linear(3, 1), "loss": nn.functional.mse_loss, "rounds": 2, "test": table} | own
        over = given.pop("link", None) or link("ideal")
        return aircomp.federate(given.pop("model"), given.pop("clients", [table] * 3), over, **given)

    class Model(nn.Linear):
        def __init__(self, spoil: Callable[..., Any]):
            super().__init__(3, 1)
            self.spoil = spoil

        def forward(self, inputs: torch.Tensor) -> Any:
            return self.spoil((inputs,), lambda: nn.Linear.forward(self, inputs))

    class Data(torch.utils.data.Dataset[Any]):
        def __init__(self, spoil: Callable[..., Any]):
            self.spoil = spoil

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            return self.spoil((index,), lambda: table[index])

    def same(value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    def loss_of(model: Any, batch: Any) -> torch.Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    found |= {
        "model": lambda spoil: train(model=Model(spoil)),
        "loss": lambda spoil: train(loss=spoilt(nn.functional.mse_loss, spoil)),
        "step": lambda spoil: train(loss=None, step=spoilt(loss_of, spoil)),
        "metric": lambda spoil: train(metrics={"m": spoilt(nn.functional.mse_loss, spoil)}),
        "before": lambda spoil: train(before=spoilt(same, spoil)),
        "after": lambda spoil: train(after=spoilt(same, spoil)),
        "collate": lambda spoil: train(collate=spoilt(torch.utils.data.default_collate, spoil)),
        "clients": lambda spoil: train(clients=[Data(spoil), table, table]),
        "test": lambda spoil: train(test=Data(spoil)),
        "base": lambda spoil: train(base=Data(spoil)),
    }
    return found


def make(name: str) -> Case:
    """Make the case of a name."""
    rng = random.Random(name)
    what = rng.choice(list(_parts()))
    spoil, said = spoiling(rng)

    def call() -> None:
        with warnings.catch_warnings():  # torch has some to say about what such objects compute
            warnings.simplefilter("ignore")
            _parts()[what](spoil)

    return Case(name, call=call, about=f"own {what}: {said}")
