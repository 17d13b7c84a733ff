r"""Lossy compression of one device's update to a given number of bits, for devices that take turns.

| function | keeps                                                                     | bits for $W$ parameters        |
|----------|---------------------------------------------------------------------------|--------------------------------|
| `qsgd`   | every parameter, rounded at random to one of $2s+1$ levels                | $W\log_2(2s+1) + 32\,W/64$     |
| `sign`   | every sign, and one mean of the absolute values                           | $W + 32$                       |
| `top_k`  | the $k$ parameters of largest absolute value, in eight bits each          | $\log_2\binom{W}{k} + 8k + 32$ |
| `d_dsgd` | where the $q$ largest or the $q$ smallest parameters are, and their mean  | $\log_2\binom{W}{q} + 33$      |

The levels of `qsgd` are multiples of the norm of 64 neighbouring parameters over $s$. The rounding is right on average.

If there are too few bits for all parameters, `qsgd` and `sign` keep the first ones of an order that all devices share. The
others arrive as zero, and error feedback keeps them.

Papers: QSGD by Alistarh et al. (2017), scaled signs by Karimireddy et al. (2019), D-DSGD by Amiri and Gündüz (2020).
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

BUCKET = 64
"""How many parameters share a norm in `qsgd`; with 512, as published, the noise is three times as large."""
NUMBER_BITS = 32
"""Bits of a norm, a scale or a mean."""
VALUE_BITS = 8
"""Bits of a value in `top_k`."""
LEVELS = tuple(2**i for i in range(21))
"""The choices of $s$ in `qsgd`; float32 does not tell more levels apart."""

Compressor = Callable[[Tensor, float, Tensor, torch.Generator], tuple[Tensor, Tensor]]
"""`(message [params], bits, order [params], rng) -> what arrives [params], what of the message counts as sent [params]`."""


def qsgd(
    message: Float[Tensor, " params"], bits: float, order: Int[Tensor, " params"], rng: torch.Generator
) -> tuple[Float[Tensor, " params"], Float[Tensor, " params"]]:
    """Round every parameter at random to one of the two levels beside it, so that it is right on average."""
    levels = _levels(bits / max(len(message), 1))
    kept = order[: int(bits / _qsgd_bits(levels))]
    buckets = torch.nn.functional.pad(message[kept], (0, -len(kept) % BUCKET)).reshape(-1, BUCKET)
    norms = buckets.norm(dim=1, keepdim=True)
    exact = buckets.abs() / norms.clamp(min=torch.finfo(norms.dtype).tiny) * levels
    drawn = torch.rand(exact.shape, generator=rng).to(exact)
    arrived = norms * buckets.sign() * (exact + drawn).floor() / levels
    # what is right on average counts as sent: a memory of errors at random would only add them up
    return _scattered(message, kept, arrived.flatten()[: len(kept)]), _scattered(message, kept, message[kept])


def sign(
    message: Float[Tensor, " params"], bits: float, order: Int[Tensor, " params"], rng: torch.Generator
) -> tuple[Float[Tensor, " params"], Float[Tensor, " params"]]:
    """Keep signs, and one absolute value for all."""
    kept = order[: max(int(min(bits, 1e12)) - NUMBER_BITS, 0)]
    values = message[kept]
    arrived = _scattered(message, kept, values.sign() * values.abs().mean() if len(kept) else values)
    return arrived, arrived


def top_k(
    message: Float[Tensor, " params"], bits: float, order: Int[Tensor, " params"], rng: torch.Generator
) -> tuple[Float[Tensor, " params"], Float[Tensor, " params"]]:
    """Keep the parameters of largest absolute value, in steps of the largest over 127."""
    number = largest_that_fits(len(message), bits, VALUE_BITS, NUMBER_BITS)
    kept = message.abs().topk(number).indices
    values = message[kept]
    step = values.abs().max() / (2 ** (VALUE_BITS - 1) - 1) if number else values.new_zeros(())
    arrived = (values / step).round() * step if float(step) > 0 else values
    whole = _scattered(message, kept, arrived)
    return whole, whole


def d_dsgd(
    message: Float[Tensor, " params"], bits: float, order: Int[Tensor, " params"], rng: torch.Generator
) -> tuple[Float[Tensor, " params"], Float[Tensor, " params"]]:
    """Keep the mean of the most positive parameters or of the most negative ones, whichever catches more energy.

    It takes as many parameters as catch the most energy, at most as many as the bits allow.
    """
    number = largest_that_fits(len(message), bits, 0, NUMBER_BITS + 1)
    if number == 0:
        return torch.zeros_like(message), torch.zeros_like(message)
    places = torch.arange(1, number + 1, device=message.device)
    sums = [(side * message).topk(number).values.double().cumsum(0).clamp(min=0) for side in (1, -1)]
    best = int(torch.cat([total.square() / places for total in sums]).argmax())
    side, size = (1, -1)[best // number], best % number + 1
    kept = (side * message).topk(size).indices
    arrived = _scattered(message, kept, message[kept].mean().expand(size))
    return arrived, arrived


COMPRESSORS: dict[str, Compressor] = {"qsgd": qsgd, "sign": sign, "topk": top_k, "d-dsgd": d_dsgd}


def largest_that_fits(num_params: int, bits: float, each: int, once: int) -> int:
    """Return how many parameters fit: their places, `each` bits for every one, and `once` bits for all together.

    >>> largest_that_fits(1000, 100.0, 8, 32)
    4
    """
    low, high = 0, num_params if each else num_params // 2  # the places of more than half take fewer bits again
    if each and each * high + once <= bits:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        fits = places_bits(num_params, middle) + each * middle + once <= bits
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def places_bits(num_params: int, number: int) -> float:
    """Return the bits that say which of all parameters were kept."""
    ways = math.lgamma(num_params + 1) - math.lgamma(number + 1) - math.lgamma(num_params - number + 1)
    return ways / math.log(2)


def _qsgd_bits(levels: int) -> float:
    return math.log2(2 * levels + 1) + NUMBER_BITS / BUCKET


def _levels(bits: float) -> int:
    """Return the $s$ with the least noise for so many bits a parameter.

    The noise has the energy of the parameters times min(D/s², √D/s), where D parameters share a norm.
    """

    def noise(levels: int) -> float:
        share = min(bits / _qsgd_bits(levels), 1.0)
        return (1 + min(BUCKET / levels**2, BUCKET**0.5 / levels)) / max(share, 1e-9)

    return min(LEVELS, key=noise)


def _scattered(message: Tensor, kept: Tensor, values: Tensor) -> Tensor:
    arrived = torch.zeros_like(message)
    arrived[kept] = values
    return arrived
