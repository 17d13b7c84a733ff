"""Public functions: a valid call of each with one or two arguments replaced by odd ones."""

import random
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from fuzz_arguments import IN
from fuzz_case import Case

NAN, INF = float("nan"), float("inf")
SCALARS: list[Any] = [None, 0, 1, -1, 3, 2**31, 2**63, 10**30, 0.5, -0.5, 1e300, 1e-300, NAN, INF, -INF, True, 1j]
THINGS: list[Any] = [
    "",
    "x",
    "gamp",
    "mean",
    "digits",
    "/dev/zero",
    b"x",
    [],
    [1.0, 2.0],
    {},
    {"a": 1},
    (),
    object(),
    len,
]

FEDERATE = ("step", "test", "metrics", "base", "local", "participation", "out", "collate", "server", "feedback")
FEDERATE += ("corruption", "on_round", "before", "after")
"""Arguments of `federate` that are None where nothing is wanted."""


def tensors() -> list[torch.Tensor]:
    """Return tensors that few functions can use."""
    return [
        torch.zeros(0),
        torch.zeros(()),
        torch.zeros(0, 8),
        torch.zeros(4, 0),
        torch.zeros(4, 8),
        torch.ones(8, 4),
        torch.ones(3, 7),
        torch.ones(2, 4, 8),
        torch.full((4, 8), NAN),
        torch.full((4, 8), INF),
        torch.full((4, 8), 3e38),
        torch.full((4, 8), 1e-38),
        torch.full((8,), -1.0),
        torch.full((8,), NAN),
        torch.ones(4, 8, dtype=torch.float64),
        torch.ones(4, 8, dtype=torch.float16),
        torch.ones(4, 8, dtype=torch.complex64),
        torch.ones(4, 8, dtype=torch.bool),
        torch.full((4, 8), -1),
        torch.full((4, 8), 2**62),
        torch.full((4,), 99),
        torch.ones(4, 8).to_sparse(),
        torch.ones(4, 8, device="meta"),
        torch.ones(4, 8, requires_grad=True),
        torch.ones(8, 4).T,
        torch.ones(1).expand(4, 8),
    ]


def odd(rng: random.Random) -> Any:
    """Return an odd argument."""
    pool = rng.random()
    return rng.choice(SCALARS if pool < 0.4 else THINGS if pool < 0.6 else tensors())


@cache
def _calls() -> dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]]:
    """Return each function under keyword arguments, and valid ones."""
    import aircomp
    from aircomp.schemes.digital.decoders import decoder_names

    generator = torch.Generator().manual_seed(0)
    codebook = aircomp.make_codebook("gaussian", 8, 4, rng=generator)
    counts = torch.tensor([[3, 0, 1, 0, 0, 0, 0, 1]] * 4)
    received = aircomp.transmit(counts, codebook, snr_db=10.0, rng=generator)
    air: dict[str, Any] = {"received": received, "popularity": torch.ones(8) / 8, "num_active": None, "noise_var": None}
    side = {
        "bs_indices": torch.zeros(4).long(),
        "slot_layers": torch.zeros(4).long(),
        "quant_codebook": torch.ones(8, 2),
    }
    tiny = {"rounds": 1, "engine": "serial", "devices.total": 4, "participation.low": 1, "participation.high": 2}
    tiny |= {"model.width": 2, "local.epochs": 1}

    def seeded() -> torch.Generator:
        return torch.Generator().manual_seed(0)

    def decode(decoder: Any, options: dict[str, Any], **arguments: Any) -> Any:
        return _finite(aircomp.make_decoder(decoder, codebook, **options).decode(**arguments))

    def layer_decode(**arguments: Any) -> Any:
        layer = aircomp.CommunicationLayer.load(f"{IN}/layer")
        return _finite(layer.decode(**({"received": torch.zeros(4, 64), "popularity": torch.ones(128)} | arguments)))

    found: dict[str, tuple[Callable[..., Any], Callable[[], dict[str, Any]]]] = {
        "transmit": (
            aircomp.transmit,
            lambda: {"counts": counts, "codebook": codebook, "snr_db": 5.0, "reference": "round", "rng": seeded()},
        ),
        "make_codebook": (
            aircomp.make_codebook,
            lambda: {"kind": "gaussian", "num_codewords": 8, "codeword_length": 4, "rng": seeded()},
        ),
        "make_decoder": (
            aircomp.make_decoder,
            lambda: {"name": "gamp", "codebook": codebook, "snr_reference": "round", "max_iterations": 2},
        ),
        "aggregate": (
            aircomp.aggregate,
            lambda: {"rule": "trimmed-mean", "counts": counts, "codewords": torch.ones(8, 2), "keep": 0.8},
        ),
        "load": (
            aircomp.CommunicationLayer.load,
            lambda: {"directory": f"{IN}/layer", "snr_reference": "round", "device": "cpu"},
        ),
        "layer.decode": (layer_decode, lambda: {"num_active": 3, "noise_var": 0.1}),
        "simulate": (
            aircomp.simulate,
            lambda: {"preset": "digits", "uplink": "gamp", "snr_db": 5.0, "seed": 0, "aggregator": "mean"} | tiny,
        ),
        "simulate with own parts": (
            aircomp.simulate,
            lambda: (
                {"model": None, "dataset": None, "decoder": None, "channel": None, "before": None, "after": None} | tiny
            ),
        ),
    }
    table = torch.utils.data.TensorDataset(torch.ones(8, 3), torch.ones(8, 1))
    updates = torch.randn(4, 100, generator=seeded())
    found |= {
        "federate": (
            aircomp.federate,
            lambda: {
                "model": torch.nn.Linear(3, 1),
                "clients": [table] * 3,
                "link": aircomp.Link("ideal", aircomp.Awgn(5.0)),
                "loss": torch.nn.functional.mse_loss,
                **dict.fromkeys(FEDERATE),
                **{"rounds": 1, "seed": 0, "weights": "equal", "workers": 0, "ray_address": "", "device": "cpu"},
                **{"engine": "serial", "buffers": "average", "evaluate_every": 1, "checkpoint_seconds": 10.0},
            },
        ),
        "Link.send": (
            lambda scheme, channel, rule, **given: aircomp.Link(scheme, channel, rule).send(**given),
            lambda: {
                **{"scheme": "perfect", "channel": aircomp.Awgn(5.0), "rule": "mean"},
                **{"updates": updates, "base": None},
            },
        ),
        "arena": (
            aircomp.arena,
            lambda: {"challenges": [f"{IN}/challenge.toml"], "schemes": ["analog"], "seeds": 1, "out": None},
        ),
        "sweep": (
            aircomp.sweep,
            lambda: {"preset": "digits", "over": {"uplink": ["ideal"]}, "seeds": 1, "workers": 1, "out": None} | tiny,
        ),
    }
    for name in decoder_names():
        if name != "gamp-net":
            told = partial(decode, options={"truth": counts} if name == "genie" else {})
            found[f"{name}.decode"] = (told, lambda name=name: {"decoder": name} | air | side)
    return found


def _finite(decoded: Any) -> Any:
    for what in ("mean", "noise_var"):
        if not torch.isfinite(getattr(decoded, what)).all():
            raise ArithmeticError(f"decoded.{what} is not finite")
    return decoded


def make(name: str) -> Case:
    """Make the case of a name."""
    rng = random.Random(name)
    known = _calls()
    called = rng.choice(list(known))
    function, valid = known[called]
    arguments = valid()
    changed = rng.sample(list(arguments), min(len(arguments), rng.choice([0, 1, 1, 1, 2])))
    for argument in changed:
        if argument in ("rounds", "local.epochs") or (argument == "decoder" and called != "simulate with own parts"):
            continue  # more of the former is more work, the latter is which decoder is asked
        arguments[argument] = odd(rng)
    about = f"{called}({', '.join(f'{a}={_short(arguments[a])}' for a in changed)})"
    return Case(name, call=lambda: function(**arguments), about=about)


def _short(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)[:60]
