"""The kernels that decoding spends its time in, in C (beside this file), compiled when the package is installed.

    iterate            all iterations of GAMP (`aircomp.decoders.amp.steps`)
    pass_messages      an iteration of the paper's network up to the posterior (`aircomp.decoders.net.amp_da_net`)
    poisson_moments    posterior moments of message passing (`aircomp.decoders.amp.prior`)
    layer              a layer of GAMP-Net, with its sums for EM (`aircomp.decoders.net.blocks`)
    count_moments      posterior moments of the paper's network (`aircomp.decoders.net.count_table`)
    estimate           … and its CNN (`aircomp.decoders.net.amp_da_net`)
    settle             all iterations of AMP-DA (`aircomp.decoders.amp.amp_da`)
    nearest_points     the Viterbi search of the trellis lattice (`aircomp.decoders.trellis`)

Torch needs some hundred operations for them, each of which writes all its results to memory and takes Python's lock; a call
from here does neither, so threads that decode other slots run beside it. Results differ from torch's by rounding alone.
They are for single precision on the CPU without gradients; for all else callers keep their own.

`aircomp.common.arithmetic` loads the library and says which kernels compute, if any do.
"""

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.common.arithmetic import Kernels, kernels

PerCodeword = Float[Tensor, "slots codewords"]
PerUse = Float[Tensor, "slots uses"]
_long, _int, _float, _pointer = ctypes.c_int64, ctypes.c_int, ctypes.c_float, ctypes.c_void_p
_SIGNATURES = {
    "pass_messages": (_int, [_long, _int, _int, *[_float] * 5, _int, _int, *[_pointer] * 12]),
    "iterate": (_int, [_long, *[_int] * 5, _float, _float, *[_pointer] * 10]),
    "poisson_moments": (None, [_long, _int, _int, _int, _float, *[_pointer] * 7]),
    "layer": (
        _int,
        [
            *(_long, *[_int] * 3, *[_float] * 4, *[_pointer] * 7, _int, _int, _float, *[_pointer] * 5),
            *(_int, _int, _float, *[_pointer] * 6),
        ],
    ),
    "count_moments": (None, [_long, *[_int] * 3, _float, *[_pointer] * 8]),
    "estimate": (_int, [_long, *[_int] * 4, _float, _float, *[_pointer] * 8]),
    "settle": (_int, [*[_int] * 7, *[_float] * 4, *[_pointer] * 6]),
    "nearest_points": (_int, [_long, _long, _int, *[_pointer] * 3]),
}


def _call(name: str, *arguments: object) -> Any:
    """Call a kernel; Any: what it returns is its own affair."""
    found = kernels()
    assert found is not None, "ask `ready` first"
    return _function(found, name)(*arguments)


@functools.cache
def _function(library: Kernels, name: str) -> Any:
    function = library.function(name)
    function.restype, function.argtypes = _SIGNATURES[name]
    return function


def ready(*like: Tensor) -> bool:
    """Return whether the kernels are there for tensors like these: memory of the CPU, and nothing is recorded."""
    recorded = torch.is_grad_enabled() or torch.compiler.is_compiling()
    plain = all(type(t) in (Tensor, torch.nn.Parameter) and t.dtype == torch.float32 and t.is_cpu for t in like)
    return plain and not recorded and kernels() is not None


def serves(R: Tensor, V: Tensor, *priors: Tensor) -> bool:
    """Return whether the kernels can compute with these: R and V of one shape, priors of the same or of one row of it."""
    shapes = (R.shape, (1, *R.shape[1:]))
    fit = R.ndim == 2 and R.numel() > 0 and V.shape == R.shape and all(t.shape in shapes for t in priors)
    return fit and ready(R, V, *priors)


class Passed(NamedTuple):
    """What an iteration of message passing finds, up to the posterior."""

    z: PerUse
    v: PerUse
    R: PerCodeword
    V: PerCodeword
    energy: Float[Tensor, "slots 1"]
    """Of the noise, expected where the signal is N(z, v), averaged over the uses."""


def pass_messages(
    codebook: Float[Tensor, "codewords uses"],
    y: PerUse,
    noise_var: Float[Tensor, "slots 1"],
    counts: tuple[PerCodeword, PerCodeword],
    before: tuple[PerUse, PerUse],
    *,
    gain: float = 1.0,
    damping: float = 0.0,
    precision: float = 1.0,
    limit: float,
    least: float = 0.0,
    late: bool = False,
    late_residual: bool = False,
) -> Passed:
    """Run the output block and the pseudo-channel; see `aircomp.decoders.amp.steps`.

    Args:
        codebook: One codeword a row.
        y: The received signal.
        noise_var: Of every slot.
        counts: Means and variances.
        before: z and v.
        gain: γ of the output block.
        damping: η of the output block.
        precision: β of the pseudo-channel.
        limit: Of z, either side of zero.
        least: Under variances and precisions.
        late: Whether the pseudo-channel sees the variance from before the output block.
        late_residual: … and the residual from before it.
    """
    given = _in_rows(codebook, y, noise_var.expand(len(y), 1), *counts, *before)
    z, v, R, V = (torch.empty(t.shape, dtype=t.dtype) for t in (y, y, counts[0], counts[0]))
    energy = torch.empty(len(y), 1, dtype=y.dtype)
    failed = _call(
        "pass_messages",
        *(len(y), *codebook.shape, gain, damping, precision, limit, least, not late, not late_residual),
        *_addresses(*given, z, v, R, V, energy),
    )
    if failed:
        raise MemoryError(f"there is no memory for the products with {len(codebook)} codewords")
    return Passed(z, v, R, V, energy)


def iterate(
    codebook: Float[Tensor, "codewords uses"],
    y: PerUse,
    noise_var: Float[Tensor, "#slots 1"],
    state: tuple[PerCodeword, PerCodeword, PerUse, PerUse],
    prior: tuple[Float[Tensor, "#slots #codewords"], Float[Tensor, "#slots codewords"] | None],
    *,
    iterations: int,
    reach: int,
    most: float,
    limit: float,
) -> tuple[PerCodeword, PerCodeword, PerUse, PerUse]:
    """Run all iterations of GAMP; return the state after them; see `aircomp.decoders.amp.steps.iterate`.

    Args:
        codebook: One codeword a row.
        y: The received signal.
        noise_var: Of every slot.
        state: Means and variances of the counts, z and v before the first iteration.
        prior: Logarithm of Poisson rates and None, or the urn's log p and a.
        iterations: How many.
        reach: Counts summed either side of the mode.
        most: The largest count.
        limit: Of z, either side of zero.
    """
    given = _in_rows(codebook, y, noise_var.expand(len(y), 1), *_prior(*prior))
    x_hat, nu, z, v = (t.clone(memory_format=torch.contiguous_format) for t in state)
    failed = _call(
        "iterate",
        *(len(y), *codebook.shape, len(prior[0]) > 1, iterations, reach, most, limit),
        *_addresses(*given, x_hat, nu, z, v),
    )
    if failed:
        raise MemoryError(f"there is no memory for the products with {len(codebook)} codewords")
    return x_hat, nu, z, v


class Settled(NamedTuple):
    """What the iterations of a batch come to; see `aircomp.decoders.amp.amp_da.Settled`."""

    x_hat: PerCodeword
    alpha: Float[Tensor, " codewords"]
    sigma2: Float[Tensor, " slots"]
    iterations: int


def settle(
    codebook: Float[Tensor, "codewords uses"],
    y: PerUse,
    start: tuple[float, Float[Tensor, " slots"]],
    activity: float,
    *,
    learn_noise: bool,
    iterations: int,
    patience: int,
    largest: int,
    damping: float,
    limit: float,
    least_chance: float,
    least: float,
) -> Settled:
    """Run all iterations of AMP-DA on a batch; see `aircomp.decoders.amp.amp_da`.

    Args:
        codebook: One codeword a row.
        y: The received signal, of one slot at least.
        start: Every count, and the noise variance of every slot.
        activity: Of every codeword at the start.
        learn_noise: Whether the batch learns one noise variance.
        iterations: The most of them.
        patience: After so many a residual that rises ends them.
        largest: The largest count.
        damping: Share of the old state that each iteration keeps.
        limit: Of z, either side of zero.
        least_chance: Chances stay so far from zero and one.
        least: Under variances and precisions.
    """
    count, sigma2 = start
    codebook, y, sigma2 = codebook.contiguous(), y.contiguous(), sigma2.clone()
    x_hat, alpha = y.new_full((len(y), len(codebook)), count), y.new_full((len(codebook),), activity)
    idle = torch.full_like(alpha, 1 - activity)
    done = _call(
        "settle",
        *(len(y), *codebook.shape, iterations, patience, largest, learn_noise, damping, limit, least_chance, least),
        *_addresses(codebook, y, x_hat, alpha, idle, sigma2),
    )
    if done < 0:
        raise MemoryError(f"there is no memory for a batch of {len(y)} slots and {len(codebook)} codewords")
    return Settled(x_hat, alpha, sigma2, done)


def poisson_moments(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    log_rate: Float[Tensor, "#slots #codewords"],
    shape: Float[Tensor, "#slots codewords"] | None,
    *,
    reach: int,
    most: float,
) -> tuple[Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]]:
    """Return posterior mean and variance of counts; see `aircomp.decoders.amp.prior.poisson_posterior`.

    Args:
        R: Pseudo-observations.
        V: Their variances, positive.
        log_rate: Of Poisson counts, or the urn's log p.
        shape: The urn's a; None is Poisson.
        reach: Counts summed either side of the mode.
        most: The largest count.
    """
    given = _in_rows(R, V, *_prior(log_rate, shape))
    mean, var = R.new_empty(R.shape), R.new_empty(R.shape)
    _call("poisson_moments", *R.shape, len(log_rate) > 1, reach, most, *_addresses(*given, mean, var))
    return mean, var


@dataclass(frozen=True)
class NetLayer:
    """What a layer of GAMP-Net computes with, whichever the slots; see `aircomp.decoders.net.blocks`."""

    gain: float
    damping: float
    precision: float
    limit: float
    """Of z, either side of zero."""
    temperature: float
    """Of the posterior."""
    reach: int
    """Counts summed either side of a mode."""
    log_factorials: Float[Tensor, " counts"]
    """Of all modes, from zero."""
    gate: float = 0.0
    """How much of the CNN's correction is taken."""
    weights: Sequence[Tensor] = ()
    """Weight and bias of its convolutions, weights as [filters, kernel, channels]; none for a layer without."""

    @cached_property
    def steps(self) -> list[Tensor]:
        """What weights are multiplied with on the way up to a count, and on the way down from it."""
        counts = torch.arange(len(self.log_factorials) + self.reach).to(self.log_factorials)
        growth, decay = counts.pow(-1 / self.temperature), counts.pow(1 / self.temperature)
        decay[1] = 0.0  # no step of the slab leads down from one
        return [growth, decay, self.log_factorials]

    @cached_property
    def network(self) -> list[Tensor]:
        """The weights, row by row."""
        return [weight.contiguous() for weight in self.weights]


def layer(
    codebook: Float[Tensor, "codewords uses"],
    y: PerUse,
    noise_var: Float[Tensor, "slots 1"],
    state: tuple[PerCodeword, PerCodeword, PerUse, PerUse],
    prior: tuple[Float[Tensor, "#slots codewords"], Float[Tensor, "#slots codewords"]],
    net: NetLayer,
) -> tuple[tuple[PerCodeword, PerCodeword, PerUse, PerUse], Float[Tensor, " sums"]]:
    """Run a layer of GAMP-Net; return the state after it, and sums over the slots for EM.

    The sums are of means, variances and activities of every codeword, and of the noise's energy.

    Args:
        codebook: One codeword a row.
        y: The received signal.
        noise_var: Of every slot.
        state: Means and variances of the counts, z and v.
        prior: Logarithm of the rates, and what was believed of the activity.
        net: The layer.
    """
    own, priors = _priors(len(y), *prior)
    given, before, priors = _in_rows(codebook, y, noise_var), _in_rows(*state), _in_rows(*priors)
    x_hat, nu, z, v = (torch.empty(t.shape, dtype=t.dtype) for t in state)
    sums = torch.zeros(3 * len(codebook) + 1, dtype=torch.float64)
    failed = _call(
        "layer",
        *(len(y), *codebook.shape, own, net.gain, net.damping, net.precision, net.limit),
        *_addresses(*given, *before),
        *(net.reach, len(net.log_factorials) - 1, 1 / net.temperature),
        *_addresses(*net.steps, *priors),
        *((len(net.network[0]), net.network[0].shape[1]) if net.network else (0, 1)),
        net.gate,
        (ctypes.c_void_p * 6)(*_addresses(*net.network)),
        *_addresses(x_hat, nu, z, v),
        sums.data_ptr(),
    )
    if failed:
        raise MemoryError(f"there is no memory for a layer's maps of {len(codebook)} codewords")
    return (x_hat, nu, z, v), sums


def count_moments(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    log_rate: Float[Tensor, "#slots codewords"],
    log_odds: Float[Tensor, "#slots codewords"],
    *,
    temperature: float,
    largest: int,
) -> tuple[Float[Tensor, "slots codewords"], ...]:
    """Return mean, variance and activity of counts; see `aircomp.decoders.net.count_table.count_moments`."""
    log_factorials = torch.lgamma(torch.arange(largest + 1).to(R) + 1)
    own, priors = _priors(len(R), log_rate, log_odds)
    given = _in_rows(log_factorials, R, V, *priors)
    found = [R.new_empty(R.shape) for _ in range(3)]
    _call("count_moments", *R.shape, own, largest, 1 / temperature, *_addresses(*given, *found))
    return tuple(found)


def estimate(
    R: Float[Tensor, "slots codewords"],
    V: Float[Tensor, "slots codewords"],
    moments: tuple[Float[Tensor, "slots codewords"], Float[Tensor, "slots codewords"]],
    rows: tuple[Float[Tensor, "#slots codewords"], Float[Tensor, "#slots codewords"]],
    *,
    gate: float,
    limit: float,
    weights: Sequence[Tensor],
) -> Float[Tensor, "slots codewords"]:
    """Return the counts that the paper's network takes on; see `aircomp.decoders.net.amp_da_net`.

    Args:
        R: Pseudo-observations.
        V: Their variances, positive.
        moments: Mean and variance of the counts.
        rows: The CNN's last two features: activity and popularity.
        gate: How much of the CNN's estimate is taken.
        limit: Of the counts.
        weights: Of the convolutions, as [filters, kernel, channels].
    """
    own, priors = _priors(len(R), *rows)
    given, network = _in_rows(R, V, *moments, *priors), _in_rows(*weights)
    found = R.new_empty(R.shape)
    failed = _call(
        "estimate",
        *(*R.shape, own, *weights[0].shape[:2], gate, limit),
        (ctypes.c_void_p * 3)(*_addresses(*network)),
        *_addresses(*given, found),
    )
    if failed:
        raise MemoryError(f"there is no memory for the network's maps of {R.shape[1]} codewords")
    return found


def _prior(log_rate: Tensor, shape: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return logarithms of the rates and no more; or the urn's log p, its a, and the logarithm of its weight of one."""
    return (log_rate, None, None) if shape is None else (log_rate.expand_as(shape), shape, shape.log() + log_rate)


def _priors(slots: int, *rows: Tensor) -> tuple[bool, list[Tensor]]:
    """Return whether slots have rows of their own, and rows for each of them or one for all."""
    own = max(map(len, rows)) > 1
    return own, [t.expand(slots if own else 1, -1) for t in rows]


def _in_rows(*tensors: Tensor | None) -> list[Tensor | None]:
    """Return them in memory row by row; who asks for addresses keeps these until the kernel has read them."""
    return [None if t is None else t.contiguous() for t in tensors]


def _addresses(*tensors: Tensor | None) -> list[int | None]:
    assert all(t is None or t.dtype == torch.float32 for t in tensors), "a kernel would write beyond other numbers"
    return [None if t is None else t.data_ptr() for t in tensors]


def nearest_points(
    targets: Float[Tensor, "sequences numbers"], ways: Int[Tensor, "states symbols"]
) -> Float[Tensor, "sequences numbers"]:
    """Return what sequences leave beside the nearest points of the trellis lattice; see `aircomp.decoders.trellis`.

    Args:
        targets: Numbers from zero to the modulus, two a step.
        ways: The outputs of every way into a state.
    """
    labels, targets = ways.to(torch.int8).contiguous(), targets.contiguous()
    rest, sizes = torch.empty_like(targets), (len(targets), targets.shape[1] // 2, len(ways))
    if _call("nearest_points", *sizes, labels.data_ptr(), *_addresses(targets, rest)):
        raise MemoryError(f"there is no memory for the ways of {targets.shape[1]} numbers")
    return rest
