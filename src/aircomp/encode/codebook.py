"""Random-access codebooks, one unit-norm codeword per row, and what devices send with them (Sec. III-A and III-B).

Summed codewords are `count(indices, n) @ codebook`: superposition needs only how often each index was chosen.
"""

import math
from typing import get_args

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from aircomp.common.checks import check_choice, check_number
from aircomp.common.memory import check_memory
from aircomp.common.rng import fixed_generator
from aircomp.common.tensors import check_generator
from aircomp.encode.settings import CodebookKind
from aircomp.errors import ConfigError, ShapeError

_STEPS, _STEP, _SHARPNESS = 300, 0.03, (1.0, 3.0)
"""Of the descent to low coherence: steps, their size, and how sharply the largest overlap counts, as powers of ten."""
MOST_BASES, _FORMS = 9, 1000
"""Of the codebook `bases`: so many, and so many quadratic forms tried for them."""
MOST_CODEWORDS, MOST_USES = 32_767, 65_536
"""Largest codebook: indices have 16 bits, and a square of the length must fit into memory."""


def codebook_kinds() -> list[str]:
    """Return the names that `make_codebook` knows."""
    return list(get_args(CodebookKind))


def make_codebook(
    kind: str, num_codewords: int, codeword_length: int, *, rng: torch.Generator
) -> Float[Tensor, "codewords uses"]:
    r"""Draw a random-access codebook with unit-norm rows, float32, on the device of `rng`.

    Args:
        kind: `gaussian` (random directions), `bernoulli` (entries $\pm 1/\sqrt{l}$, no row twice) or `two-bases`
            (two orthonormal bases with flat cross-correlation $1/\sqrt{l}$, the first rows in the first one), or `bases`
            (as many of them as it takes, with a cross-correlation of at most $1/\sqrt{l}$, or $\sqrt{2/l}$ for odd powers
            of two), or `low-coherence` (the largest $|c_i^H c_j|$ of codewords packed two uses to a complex one is small:
            all that counts without a phase reference), or `low-coherence-real` (the same of codewords as they are: no sum of
            some codewords is that of others, as it is with two bases: four codewords of one can be four of the other).
            Packed, gaussian codewords are complex Gaussian, bernoulli ones QPSK.
        num_codewords: Number of rows.
        codeword_length: Channel uses of one codeword.
        rng: Where the randomness comes from.
    """
    check_choice("codebook", kind, codebook_kinds())
    check_number("num_codewords", num_codewords, low=1, high=MOST_CODEWORDS, integer=True)
    check_number("codeword_length", codeword_length, low=1, high=MOST_USES, integer=True)
    check_generator("rng", rng)
    rotation = codeword_length**2 if kind in ("two-bases", "bases") else 0
    # drawn in double precision
    check_memory({"the codebook (codewords, codeword_length)": 8 * (num_codewords * codeword_length + rotation)})
    match kind:
        case "gaussian":
            return _gaussian(num_codewords, codeword_length, rng)
        case "bernoulli":
            return _bernoulli(num_codewords, codeword_length, rng)
        case "low-coherence":
            return _low_coherence(num_codewords, codeword_length, 2, rng)
        case "low-coherence-real":
            return _low_coherence(num_codewords, codeword_length, 1, rng)
        case "two-bases":
            return _bases(kind, num_codewords, codeword_length, 2, rng)
        case _:
            return _bases(kind, num_codewords, codeword_length, MOST_BASES, rng)


def count(indices: Integer[Tensor, "devices slots"], num_codewords: int) -> Int[Tensor, "slots codewords"]:
    """Count how many devices chose each codeword in each slot (int64)."""
    chosen = _checked(indices, num_codewords).T
    counts = torch.zeros(len(chosen), num_codewords, dtype=torch.int64, device=indices.device)
    return counts.scatter_add_(1, chosen, torch.ones_like(chosen))


def sent_counts(
    indices: Integer[Tensor, "devices slots"], delivered: Bool[Tensor, "devices slots"] | None, num_codewords: int
) -> Int[Tensor, "slots codewords"]:
    """Count how many devices sent each codeword; those that were silent in a slot did not."""
    if delivered is None:
        return count(indices, num_codewords)
    chosen = indices.long().where(delivered.to(indices.device), num_codewords)  # one more column takes the silent ones
    return count(chosen, num_codewords + 1)[:, :num_codewords]


def _checked(indices: Tensor, num_codewords: int) -> Tensor:
    if indices.ndim != 2:
        raise ShapeError(f"indices has shape {tuple(indices.shape)}; expected [devices, slots]")
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise ShapeError(f"indices holds {indices.dtype}; expected integers")
    indices = indices.long()
    if indices.numel():
        low, high = (int(bound) for bound in torch.aminmax(indices))
        if low < 0 or high >= num_codewords:
            raise ShapeError(f"indices run from {low} to {high}; expected 0 to {num_codewords - 1} for this codebook")
    return indices


def _gaussian(n: int, l: int, rng: torch.Generator) -> Tensor:  # noqa: E741
    rows = torch.randn(n, l, dtype=torch.float64, generator=rng, device=rng.device)
    return torch.nn.functional.normalize(rows, dim=1).float()


def _bernoulli(n: int, l: int, rng: torch.Generator) -> Tensor:  # noqa: E741
    if n > 2**l:
        raise ConfigError(
            f"only {2**l} different rows of {l} signs exist, not {n}; lengthen the codewords or take fewer of them"
        )
    distinct: dict[tuple[int, ...], None] = {}  # in the order of drawing; equal rows could not be told apart
    while len(distinct) < n:
        bits = torch.randint(0, 2, (n, l), generator=rng, device=rng.device)
        distinct.update(dict.fromkeys(map(tuple, bits.tolist())))
    signs = 2.0 * torch.tensor(list(distinct)[:n], dtype=torch.float64, device=rng.device) - 1.0
    return (signs / math.sqrt(l)).float()


def _bases(kind: str, n: int, l: int, most: int, rng: torch.Generator) -> Tensor:  # noqa: E741
    """Stack the identity and Hadamard matrices with signs; turn all by one random rotation, which keeps inner products."""
    if l < 2 or l & (l - 1):
        raise ConfigError(
            f"codeword_length = {l}: {kind} needs a power of two (of at least 2);"
            " choose one, or the gaussian or bernoulli codebook"
        )
    hadamard = torch.ones(1, 1, dtype=torch.float64, device=rng.device)
    while len(hadamard) < l:
        hadamard = torch.cat([torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)])
    number = -(-n // l)
    signs = _apart(hadamard, min(number, most) - 1)
    if number > 1 + len(signs):
        others = "bases, gaussian" if kind == "two-bases" else "gaussian"
        raise ConfigError(
            f"the codebook {kind} has at most {(1 + len(signs)) * l} codewords of length {l}, not {n};"
            f" lengthen the codewords, take fewer of them, or choose the {others} or bernoulli codebook"
        )
    turn = random_rotation(l, rng)
    return torch.cat([turn, *(hadamard * sign @ turn / math.sqrt(l) for sign in signs)])[:n].float()


def _apart(hadamard: Tensor, number: int) -> list[Tensor]:
    """Return rows of signs that turn the Hadamard matrix into bases far from each other: powers of −1 of quadratic forms.

    Two such bases have the cross-correlations of the product's Walsh spectrum, which a form of full rank makes flat.
    These are the bases of Kerdock codes. Forms are tried in a fixed random order; the first is zero, the Hadamard matrix
    itself.
    """
    l = len(hadamard)  # noqa: E741
    bits = (torch.arange(l)[:, None] >> torch.arange(l.bit_length() - 1) & 1).double()
    most = 2.0 ** ((l.bit_length()) // 2)  # of the spectrum: its least maximum for quadratic forms
    found, rng = [torch.ones(l, dtype=torch.float64)], fixed_generator("quadratic forms", l)
    for _ in range(_FORMS):
        if len(found) >= number:
            break
        form = torch.randint(0, 2, (bits.shape[1], bits.shape[1]), generator=rng).double().triu(1)
        sign = 1 - 2 * ((bits @ form * bits).sum(1) % 2)
        if all(float((hadamard.cpu() @ (sign * other)).abs().max()) <= most < l for other in found):
            found.append(sign)
    return [sign.to(hadamard.device) for sign in found[:number]]


def _low_coherence(n: int, l: int, parts: int, rng: torch.Generator) -> Tensor:  # noqa: E741
    """Push codewords apart by gradient descent on the largest overlap, softened less and less; two parts are complex."""
    if l % parts:
        raise ConfigError(f"codeword_length = {l}: low-coherence takes two uses for a complex one; make it even")
    check_memory({"the overlaps of codewords (codewords)": 4 * 16 * n * n})
    entries = torch.randn(n, l // parts, parts, dtype=torch.float64, generator=rng, device=rng.device)
    mean, square = torch.zeros_like(entries), torch.zeros_like(entries)
    with torch.enable_grad():
        entries.requires_grad_()
        for step, sharpness in enumerate(torch.logspace(*_SHARPNESS, _STEPS).tolist(), 1):
            rows = torch.nn.functional.normalize(entries.flatten(1), dim=1).unflatten(1, (-1, parts))
            words = torch.view_as_complex(rows.contiguous()) if parts == 2 else rows.squeeze(2)
            overlaps = (words @ words.mH).abs().square() - torch.eye(n, dtype=torch.float64, device=rng.device)
            (gradient,) = torch.autograd.grad(torch.logsumexp(sharpness * overlaps.flatten(), 0) / sharpness, entries)
            _adam(entries.detach(), gradient, mean, square, step)
    return torch.nn.functional.normalize(entries.detach().flatten(1), dim=1).float()


def _adam(values: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: int) -> None:
    """Take the step of Adam with its usual constants, in place; `torch.optim` would load PyTorch's compiler, in a second."""
    mean.lerp_(gradient, 1 - 0.9)
    square.mul_(0.999).addcmul_(gradient, gradient, value=1 - 0.999)
    size = (square.sqrt() / (1 - 0.999**step) ** 0.5).add_(1e-8)
    values.addcdiv_(mean, size, value=-_STEP / (1 - 0.9**step))


def random_rotation(l: int, rng: torch.Generator) -> Tensor:  # noqa: E741
    """Draw an orthogonal matrix uniformly.

    QR alone is not uniform: it fixes the signs in its own way. A positive diagonal of R makes it so.
    """
    q, r = torch.linalg.qr(torch.randn(l, l, dtype=torch.float64, generator=rng, device=rng.device))
    return q * torch.where(r.diagonal() < 0, -1.0, 1.0)
