r"""Belief propagation over the integers modulo a prime (Davey and MacKay 1998; Fourier form: Barnault and Declercq 2003).

Messages are distributions over $\mathbb{Z}_p$. A check tells a symbol the distribution of what the others leave for it. That
is a convolution over the group, so a product of Fourier transforms:

$$R_{c \to v}(x) = \mathcal{F}^{-1}\Big[\overline{\prod_{w \ne v} \mathcal{F}[Q_{w \to c}(h_{cw}^{-1} \cdot)]}\Big](h_{cv}x)$$

A symbol tells a check $Q_{v \to c}(x) \propto P_v(x) R_{d \to v}(x)$, where $d$ is its other check.

All words of a round are decoded at once, along the last axis. The factors $h$ permute the columns of a matrix of real Fourier
coefficients, one matrix for each edge, so that nothing is gathered symbol by symbol.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

LEAST = 1e-9
"""The least probability of a message: float32 transforms err by 1e-7 of the largest."""
ITERATIONS = 30
"""Words that are not decoded by then are left to the soft values; at planned rates nearly all take fewer than 15."""
CHUNK = 1 << 23
"""Numbers of one array of messages: 32 MB."""


@runtime_checkable
class Code(Protocol):
    """What decoding needs of a code whose symbols are in two checks each (`encode/ldpc.py`)."""

    @property
    def prime(self) -> int:
        """How many values a symbol has."""
        ...

    @property
    def symbols(self) -> Int[Tensor, "checks degree"]:
        """The symbols of each check."""
        ...

    @property
    def factors(self) -> Int[Tensor, "checks degree"]:
        """What each of them is multiplied by."""
        ...

    def holds(self, symbols: Int[Tensor, "blocks symbols"]) -> Bool[Tensor, " blocks"]:
        """Return which words satisfy every check."""
        ...


@dataclass(frozen=True)
class Edges:
    """A code as belief propagation uses it; edges in the order of the checks."""

    to: Float[Tensor, "edges prime prime"]
    """From messages to real Fourier coefficients of messages of what symbols are multiplied to."""
    back: Float[Tensor, "edges prime prime"]
    of_symbols: Int[Tensor, "symbols 2"]
    """The two edges of every symbol."""


@lru_cache(maxsize=4)
def _edges(code: Code) -> Edges:
    p, half = code.prime, code.prime // 2
    turns = 2 * torch.pi / p * torch.outer(torch.arange(1, half + 1), torch.arange(p)).double()
    whole = torch.cat([torch.ones(1, p, dtype=torch.float64), turns.cos(), -turns.sin()])
    weights = torch.cat([torch.ones(1), torch.full((p - 1,), 2.0)]).double() / p
    flat = code.factors.flatten()
    image = flat[:, None] * torch.arange(p) % p  # where each value of the symbol goes
    to = whole[:, image].movedim(1, 0)
    # the sum of the others is minus the symbol's own: coefficients at −hx, so sines keep their sign
    conjugate = torch.cat([whole[: half + 1], -whole[half + 1 :]])
    back = (conjugate * weights[:, None])[:, image].permute(1, 2, 0)
    order = code.symbols.flatten().argsort(stable=True)
    return Edges(to.float().contiguous(), back.float().contiguous(), order.reshape(-1, 2))


def _exclusive(
    real: Float[Tensor, "checks degree half blocks"], imag: Float[Tensor, "checks degree half blocks"]
) -> tuple[Tensor, Tensor]:
    """Return for every symbol of a check the product of the complex coefficients of all others."""
    degree = real.shape[1]
    out_real, out_imag = torch.empty_like(real), torch.empty_like(imag)
    out_real[:, -1], out_imag[:, -1] = 1, 0
    for i in reversed(range(degree - 1)):  # products of those behind
        a, b, c, d = out_real[:, i + 1], out_imag[:, i + 1], real[:, i + 1], imag[:, i + 1]
        out_real[:, i], out_imag[:, i] = a * c - b * d, a * d + b * c
    before_real, before_imag = real[:, 0], imag[:, 0]
    for i in range(1, degree):
        a, b = out_real[:, i].clone(), out_imag[:, i].clone()
        out_real[:, i] = a * before_real - b * before_imag
        out_imag[:, i] = a * before_imag + b * before_real
        if i + 1 < degree:
            c, d = real[:, i], imag[:, i]
            before_real, before_imag = before_real * c - before_imag * d, before_real * d + before_imag * c
    return out_real, out_imag


def _of_checks(messages: Float[Tensor, "edges prime blocks"], edges: Edges, degree: int) -> Tensor:
    """Return what checks tell symbols."""
    half = messages.shape[1] // 2
    spectrum = torch.bmm(edges.to, messages).unflatten(0, (-1, degree))
    real, imag = _exclusive(spectrum[:, :, 1 : half + 1], spectrum[:, :, half + 1 :])
    spectrum[:, :, 0] = 1  # messages sum to one
    spectrum[:, :, 1 : half + 1], spectrum[:, :, half + 1 :] = real, imag
    return torch.bmm(edges.back, spectrum.flatten(0, 1)).clamp_(min=LEAST)


def _iterate(
    messages: Float[Tensor, "edges prime blocks"],
    channel: Float[Tensor, "symbols prime blocks"],
    code: Code,
    edges: Edges,
) -> tuple[Tensor, Tensor]:
    """Return the next messages of symbols, and the distribution of every symbol."""
    told = _of_checks(messages, edges, code.symbols.shape[1])
    following = torch.empty_like(messages)
    belief = channel * told[edges.of_symbols[:, 1]]
    for first, second in ((0, 1), (1, 0)):
        own = channel * told[edges.of_symbols[:, second]]
        following[edges.of_symbols[:, first]] = own / own.sum(dim=1, keepdim=True)
    belief *= told[edges.of_symbols[:, 0]]
    return following, belief / belief.sum(dim=1, keepdim=True)


def decode(
    channel: Float[Tensor, "blocks symbols prime"], code: Code, iterations: int = ITERATIONS
) -> tuple[Int[Tensor, "blocks symbols"], Bool[Tensor, " blocks"], Float[Tensor, "blocks symbols prime"]]:
    """Decode words.

    Args:
        channel: The distribution of every symbol, as the channel and what is known beforehand tell it.
        code: Which code.
        iterations: At most so many.

    Returns:
        The most probable symbols, which words satisfy all checks, and the distribution of every symbol.
    """
    edges, size = _edges(code), max(CHUNK // (code.symbols.numel() * code.prime), 8)
    parts = [_decode_some(some.permute(1, 2, 0).contiguous(), code, edges, iterations) for some in channel.split(size)]
    words, right, beliefs = (torch.cat(of_all) for of_all in zip(*parts, strict=True))
    return words, right, beliefs


def _decode_some(
    channel: Float[Tensor, "symbols prime blocks"], code: Code, edges: Edges, iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    beliefs = channel.clone()
    words = channel.argmax(dim=1).T.contiguous()
    right = code.holds(words)
    left = (~right).nonzero()[:, 0]
    priors = channel[:, :, left]
    messages = priors[code.symbols.flatten()]
    for _ in range(iterations):
        if not len(left):
            break
        messages, belief = _iterate(messages, priors, code, edges)
        found = belief.argmax(dim=1).T.contiguous()
        holds = code.holds(found)
        words[left], beliefs[:, :, left], right[left] = found, belief, holds
        if holds.any():
            keep = (~holds).nonzero()[:, 0]
            left, messages, priors = left[keep], messages[:, :, keep], priors[:, :, keep]
    return words, right, beliefs.permute(2, 0, 1)
