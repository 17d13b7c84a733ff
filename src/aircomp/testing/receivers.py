"""What holds of every receiver."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Complex
from torch import Tensor

from aircomp.common.checks import check_callable, check_methods
from aircomp.common.radio import GainModel
from aircomp.common.rng import fixed_generator
from aircomp.decoders.base import Decoded
from aircomp.decoders.fading.receiver import Receiver, Reception
from aircomp.errors import ShapeError
from aircomp.testing.decoders import check_decoded

_CODEWORDS, _USES, _SLOTS, _DEVICES, _ANTENNAS = 64, 32, 24, 6, 128
_RIGHT = 0.98
"""Share of the counts that must be right without noise: gains of 128 antennas still differ by 9 % in power."""


def check_receiver(make: Callable[[Complex[Tensor, "codewords uses"]], Receiver], *, in_phase: bool = False) -> None:
    """Check the properties that every receiver must have.

    Args:
        make: Builds the receiver for a complex random-access codebook, one unit-norm codeword a row.
        in_phase: Whether it needs devices that undo their phase; it then meets gains of one, and random ones otherwise.

    Raises:
        AssertionError: With a sentence that says what the receiver did.
    """
    check_callable("make", make, "of a codebook that returns a receiver")
    rng = fixed_generator("receiver")
    codebook = _complex(rng, _CODEWORDS, _USES)
    codebook /= codebook.norm(dim=1, keepdim=True)
    receiver = make(codebook)
    check_methods("what make returned", receiver, "receive")
    assert isinstance(receiver.side_information, tuple), "it does not say what it is told: side_information"
    popularity = torch.arange(1.0, _CODEWORDS + 1).reciprocal()
    chosen = torch.multinomial(popularity.expand(_SLOTS, -1), _DEVICES, replacement=True, generator=rng)
    truth = torch.zeros(_SLOTS, _CODEWORDS, dtype=torch.int64).scatter_add_(1, chosen, torch.ones_like(chosen))
    gains = torch.ones(_ANTENNAS, _SLOTS, _DEVICES, dtype=torch.complex64)
    if not in_phase:
        gains = torch.cat([_complex(rng, _ANTENNAS, 1, _DEVICES).expand(-1, n, -1) for n in (10, _SLOTS - 10)], 1)
    received = torch.einsum("ask,sku->asu", gains, codebook[chosen])
    received = received + 0.02 * _complex(rng, *received.shape)
    model = GainModel() if in_phase else GainModel.unknown_phase()
    seen = Reception(received, popularity, blocks=(slice(0, 10), slice(10, _SLOTS)), gain_model=model)
    _check_clean(receiver, seen, truth)
    _check_given(receiver, seen)
    _check_popularity(receiver, seen)
    _check_edges(receiver, seen)


def _complex(rng: torch.Generator, *shape: int) -> Tensor:
    return torch.view_as_complex(torch.randn(*shape, 2, generator=rng)) / math.sqrt(2)


def _received(receiver: Receiver, seen: Reception) -> list[Decoded]:
    found = receiver.receive(seen)
    assert len(found) == len(seen.all_blocks), f"{len(found)} results came back for {len(seen.all_blocks)} blocks"
    for decoded, rows in zip(found, seen.all_blocks, strict=True):
        check_decoded(decoded, rows.stop - rows.start, _CODEWORDS)
    return found


def _counts(found: list[Decoded]) -> Tensor:
    return torch.cat([decoded.counts for decoded in found])


def _check_clean(receiver: Receiver, seen: Reception, truth: Tensor) -> None:
    counts = _counts(_received(receiver, seen))
    wrong = float((counts - truth).abs().sum()) / (2 * float(truth.sum()))
    assert wrong <= 1 - _RIGHT, f"with hardly any noise, {wrong:.2g} of the counts are wrong"
    assert torch.equal(counts, _counts(_received(receiver, seen))), "equal receptions give other counts"


def _check_given(receiver: Receiver, seen: Reception) -> None:
    for number in (0.0, 1.0, float(_DEVICES)):
        for decoded in _received(receiver, replace(seen, num_active=number)):
            assert decoded.num_active == number, f"num_active={number} was given, {decoded.num_active} came back"
    _received(receiver, replace(seen, noise_var=0.01))


def _check_popularity(receiver: Receiver, seen: Reception) -> None:
    scaled = replace(seen, popularity=7 * seen.popularity)
    same = torch.equal(_counts(receiver.receive(seen)), _counts(receiver.receive(scaled)))
    assert same, "a popularity of another sum changes the counts"


def _check_edges(receiver: Receiver, seen: Reception) -> None:
    empty, layers = replace(seen, received=seen.received[:, :0], blocks=()), torch.zeros(0, dtype=torch.int64)
    _received(receiver, empty)
    _received(receiver, replace(empty, num_active=float(_DEVICES), slot_layers=layers))
    _received(receiver, replace(seen, received=seen.received.to(torch.complex128)))
    for decoded in _received(receiver, replace(seen, received=torch.zeros_like(seen.received))):
        assert decoded.num_active == 0, f"in a round without signal it sees {decoded.num_active_hat:.3g} devices"
    noise = _complex(fixed_generator("noise"), *seen.received.shape)
    for signal in (noise, 1e15 * noise, 1e-15 * noise, torch.ones_like(noise)):
        _received(receiver, replace(seen, received=signal))
    for bad in (math.nan, math.inf):
        broken = seen.received.clone()
        broken[0, 0, 0] = bad
        _check_refused(receiver, replace(seen, received=broken), f"a received signal with {bad}")
    _check_refused(receiver, replace(seen, popularity=torch.zeros_like(seen.popularity)), "a popularity of zeros")
    _check_refused(receiver, replace(seen, received=seen.received[..., :5]), "codewords of another length")


def _check_refused(receiver: Receiver, seen: Reception, what: str) -> None:
    try:
        receiver.receive(seen)
    except ShapeError:
        return
    raise AssertionError(f"{what} was decoded; expected a ShapeError")
