"""The kernels that decoding spends its time in, in C (`kernels.c`): compiled on first use, and without a compiler not there.

    output_step        what an iteration of message passing does for every use (`aircomp.decode.gamp_steps`)
    poisson_moments    posterior moments of message passing (`aircomp.decode.prior`)
    refined_moments    posterior moments of the network and its CNN (`aircomp.decode.tempered`, `aircomp.decode.cnn`)

Torch needs some hundred operations for them, each of which writes all its results to memory and takes Python's lock; a call
from here does neither, so threads that decode other slots run beside it. Results differ from torch's by rounding alone.
They are for single precision on the CPU without gradients; for all else callers keep their own.
"""

import contextlib
import ctypes
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common.compiled import compiled

_long, _int, _float, _pointer = ctypes.c_int64, ctypes.c_int, ctypes.c_float, ctypes.c_void_p
_SIGNATURES = {
    "output_step": (None, [_long, _int, *[_float] * 4, *[_pointer] * 8]),
    "poisson_moments": (None, [_long, _int, _int, _int, _float, *[_pointer] * 7]),
    "refined_moments": (
        _int,
        [_long, *[_int] * 4, _float, *[_pointer] * 10, _int, _int, _float, _pointer, _pointer],
    ),
}


@functools.cache
def _kernels() -> ctypes.CDLL | None:
    library = compiled(Path(__file__).with_name("kernels.c"))
    if library is not None:
        for name, (result, arguments) in _SIGNATURES.items():
            getattr(library, name).restype, getattr(library, name).argtypes = result, arguments
    return library


_off = False


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Compute with torch's operations alone, to compare with them."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


def ready(*like: Tensor) -> bool:
    """Return whether the kernels are there for tensors like these: memory of the CPU, and nothing is recorded."""
    recorded = torch.is_grad_enabled() or torch.compiler.is_compiling()
    plain = all(type(t) in (Tensor, torch.nn.Parameter) and t.dtype == torch.float32 and t.is_cpu for t in like)
    return plain and not recorded and not _off and _kernels() is not None


def serves(R: Tensor, V: Tensor, *priors: Tensor) -> bool:
    """Return whether the kernels can compute with these: R and V of one shape, priors of the same or of one row of it."""
    shapes = (R.shape, (1, *R.shape[1:]))
    fit = R.ndim == 2 and R.numel() > 0 and V.shape == R.shape and all(t.shape in shapes for t in priors)
    return fit and ready(R, V, *priors)


def output_step(
    y: Float[Tensor, "slots uses"],
    noise_var: Float[Tensor, "slots 1"],
    before: tuple[Float[Tensor, "slots uses"], Float[Tensor, "slots uses"]],
    found: tuple[Float[Tensor, "slots uses"], Float[Tensor, "slots uses"]],
    *,
    gain: float,
    damping: float,
    precision: float,
    limit: float,
) -> tuple[Float[Tensor, "slots uses"], ...]:
    """Return z and v after the output block, and what the pseudo-channel sees: κ and κ(y − z).

    Args:
        y: The received signal.
        noise_var: Of every slot.
        before: z and v.
        found: What the products with the codebook say of them; overwritten.
        gain: γ of the output block.
        damping: η of the output block.
        precision: β of the pseudo-channel.
        limit: Of z, either side of zero.
    """
    kernels = _kernels()
    assert kernels is not None
    given = _in_rows(y, noise_var.expand(len(y), 1), *before)
    z, v = (t.contiguous() for t in found)
    kappa, seen = torch.empty_like(z), torch.empty_like(z)
    kernels.output_step(*y.shape, gain, damping, precision, limit, *_addresses(*given, z, v, kappa, seen))
    return z, v, kappa, seen


def poisson_moments(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    log_rate: Float[Tensor, "#slots #codewords"],
    shape: Float[Tensor, "#slots codewords"] | None,
    *,
    reach: int,
    most: float,
) -> tuple[Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]]:
    """Return posterior mean and variance of counts; see `aircomp.decode.prior.poisson_posterior`.

    Args:
        R: Pseudo-observations.
        V: Their variances, positive.
        log_rate: Of Poisson counts, or the urn's log p.
        shape: The urn's a; None is Poisson.
        reach: Counts summed either side of the mode.
        most: The largest count.
    """
    kernels = _kernels()
    assert kernels is not None
    log_first = None if shape is None else shape.log() + log_rate
    if shape is not None:
        log_rate = log_rate.expand_as(shape)
    given = _in_rows(R, V, log_rate, shape, log_first)
    mean, var = R.new_empty(R.shape), R.new_empty(R.shape)
    kernels.poisson_moments(*R.shape, len(log_rate) > 1, reach, most, *_addresses(*given, mean, var))
    return mean, var


def refined_moments(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    log_rate: Float[Tensor, "#slots codewords"],
    activity: Float[Tensor, "#slots codewords"],
    *,
    temperature: float,
    reach: int,
    log_factorials: Float[Tensor, " counts"],
    gate: float = 0.0,
    weights: Sequence[Tensor] = (),
) -> tuple[Float[Tensor, "slots codewords"], ...]:
    """Return mean, variance and activity of counts, and the mean that the CNN refines; see `aircomp.decode.net_blocks`.

    Args:
        R: Pseudo-observations.
        V: Their variances, positive.
        log_rate: Logarithm of the rates.
        activity: What was believed of it.
        temperature: Of the posterior.
        reach: Counts summed either side of a mode.
        log_factorials: Of all modes, from zero.
        gate: How much of the CNN's correction is taken.
        weights: Weight and bias of its convolutions, weights as [filters, kernel, channels]; none for a layer without.
    """
    kernels = _kernels()
    assert kernels is not None
    own = max(len(log_rate), len(activity)) > 1
    priors = [t.expand(len(R) if own else 1, -1) for t in (log_rate, activity)]
    power, counts = 1 / temperature, torch.arange(len(log_factorials) + reach).to(R)
    growth, decay = counts.pow(-power), counts.pow(power)
    decay[1] = 0.0  # no step of the slab leads down from one
    given = _in_rows(growth, decay, log_factorials, R, V, *priors)
    mean, var, active, refined = (R.new_empty(R.shape) for _ in range(4))
    network = _in_rows(*weights)
    failed = kernels.refined_moments(
        *(*R.shape, own, reach, len(log_factorials) - 1, power),
        *_addresses(*given, mean, var, active),
        *((len(weights[0]), weights[0].shape[1]) if weights else (0, 1)),
        gate,
        (ctypes.c_void_p * 6)(*_addresses(*network)),
        refined.data_ptr(),
    )
    if failed:
        raise MemoryError(f"there is no memory for the network's maps of {R.shape[1]} codewords")
    return mean, var, active, refined if weights else mean


def _in_rows(*tensors: Tensor | None) -> list[Tensor | None]:
    """Return them in memory row by row; who asks for addresses keeps these until the kernel has read them."""
    return [None if t is None else t.contiguous() for t in tensors]


def _addresses(*tensors: Tensor | None) -> list[int | None]:
    assert all(t is None or t.dtype == torch.float32 for t in tensors), "a kernel would write beyond other numbers"
    return [None if t is None else t.data_ptr() for t in tensors]
