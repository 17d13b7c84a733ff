r"""The 1-D CNN along the codewords that refines the counts of a layer (Sec. III-E, input block, second half).

    six features [slots, codewords] ──► 6 → 32 ──► ReLU ──► 32 → 32 ──► ReLU ──► 32 → 1 ──► correction [slots, codewords]

Memory holds [codewords + padding, channels, slots]. All that a convolution sees around one codeword, [kernel · channels,
slots], then lies side by side, and a convolution is one small matrix product for every codeword, nothing copied or
rearranged. Features are taken up fastest where memory holds the slots of a codeword side by side too.
"""

import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

NUM_FEATURES = 6
BLOCK = 256  # slots that pass through all convolutions before the next ones do: 512 at once take a fifth longer


class Cnn(nn.Module):
    """Three convolutions with ReLU between; the last one starts at zero, so that there is nothing to correct at first.

    Args:
        filters: Channels between the convolutions.
        kernel: Codewords that a convolution sees, an odd number.
        rng: Where the first weights come from.
    """

    def __init__(self, filters: int, kernel: int, *, rng: torch.Generator):
        super().__init__()
        self.weight_in, self.bias_in = _drawn(NUM_FEATURES, filters, kernel, rng)
        self.weight_mid, self.bias_mid = _drawn(filters, filters, kernel, rng)
        self.weight_out = nn.Parameter(torch.zeros(1, filters, kernel))
        self.bias_out = nn.Parameter(torch.zeros(1))

    def forward(
        self, features: Sequence[Float[Tensor, "#slots codewords"]], workspace: "Workspace | None" = None
    ) -> Float[Tensor, "slots codewords"]:
        """Return the correction to the counts.

        Args:
            features: Six maps, each with a row for every slot, or one row for all of them.
            workspace: Memory to compute in, kept from call to call by the caller.
        """
        slots = max(len(f) for f in features)
        like = features[0]
        params = [t.flatten(1) if t.ndim > 1 else t[:, None] for t in self.by_channel(like)]
        workspace = Workspace() if workspace is None else workspace
        if torch.is_grad_enabled():
            stacked = torch.stack([f.mT.expand(-1, slots) for f in features], dim=1)
            return _Convolutions.apply(stacked, workspace, *params).mT
        blocks = [slice(first, min(first + BLOCK, slots)) for first in range(0, slots, BLOCK)]
        out = like.new_empty(like.shape[1], slots)
        for block in blocks:
            lease = workspace.borrow(like, block.stop - block.start, len(self.weight_in), self.weight_in.shape[2])
            inner = lease.buffers.inner(lease.buffers.features)
            for channel, f in enumerate(features):
                inner[:, channel] = (f if len(f) == 1 else f[block]).mT
            out[:, block] = _convolve(lease.buffers, *params)
        return out.mT

    def by_channel(self, like: Tensor) -> list[Tensor]:
        """Return weight and bias of every convolution, weights as [filters, kernel, channels]."""
        pairs = (self.weight_in, self.bias_in), (self.weight_mid, self.bias_mid), (self.weight_out, self.bias_out)
        return [t for weight, bias in pairs for t in (weight.to(like).permute(0, 2, 1), bias.to(like))]


class Buffers:
    """Zero-padded memory for one number of slots: the features and both hidden maps, codewords outermost."""

    def __init__(self, like: Tensor, slots: int, filters: int, kernel: int):
        self.kernel, self.border = kernel, kernel // 2
        self.codewords, padded = like.shape[1], like.shape[1] + 2 * self.border
        self.features = like.new_zeros(padded, NUM_FEATURES, slots)
        self.first = like.new_zeros(padded, filters, slots)
        self.second = torch.zeros_like(self.first)

    def inner(self, padded: Float[Tensor, "padded channels slots"]) -> Float[Tensor, "codewords channels slots"]:
        """Return a map without the padding."""
        return padded[self.border : self.border + self.codewords]

    def around(self, padded: Float[Tensor, "padded channels slots"]) -> Float[Tensor, "codewords seen slots"]:
        """Return what a convolution sees around every codeword: its neighbours' channels one after the other."""
        _, channels, slots = padded.shape
        return padded.as_strided((self.codewords, self.kernel * channels, slots), (channels * slots, slots, 1))


class Lease:
    """The right to use some buffers, for as long as somebody holds it."""

    def __init__(self, buffers: Buffers):
        self.buffers = buffers


class Workspace:
    """Buffers used again and again: memory that is new to the process takes longer to enter than to compute with.

    Buffers are free once nobody holds their lease, which in training means that the graph of the backward pass is gone.
    """

    def __init__(self):
        self._leases: dict[tuple, list[tuple[Buffers, weakref.ref[Lease]]]] = {}
        self._lock = threading.Lock()

    def borrow(self, like: Tensor, slots: int, filters: int, kernel: int) -> Lease:
        """Return a lease on buffers whose padding is zero and whose inside is anything."""
        key = (like.shape[1], slots, filters, kernel, like.dtype, like.device)
        with self._lock:
            known = self._leases.setdefault(key, [])
            free = next((i for i, (_, lease) in enumerate(known) if lease() is None), None)
            buffers = Buffers(like, slots, filters, kernel) if free is None else known.pop(free)[0]
            lease = Lease(buffers)
            known.append((buffers, weakref.ref(lease)))
        return lease

    def __reduce__(self):
        """Copies and pickles begin empty."""
        return Workspace, ()


class _Convolutions(torch.autograd.Function):
    """The network with its backward pass, which is convolutions again; autograd would copy what each of them sees."""

    @staticmethod
    def forward(ctx: Any, stacked: Tensor, workspace: Workspace, *params: Tensor) -> Tensor:
        w_in, w_mid, w_out = params[::2]
        channels, slots = stacked.shape[1:]
        lease = workspace.borrow(stacked[:, 0].mT, slots, len(w_in), w_in.shape[1] // channels)
        lease.buffers.inner(lease.buffers.features).copy_(stacked)
        ctx.workspace, ctx.lease = workspace, lease
        ctx.save_for_backward(w_in, w_mid, w_out)
        return _convolve(lease.buffers, *params)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (what the decorator makes of it)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (gradient,) = grad_outputs
        w_in, w_mid, w_out = ctx.saved_tensors
        b: Buffers = ctx.lease.buffers
        lease = ctx.workspace.borrow(gradient.mT, gradient.shape[1], len(w_in), b.kernel)
        by: Buffers = lease.buffers  # the gradients have the same shapes
        by_out = gradient.new_zeros(len(b.first), 1, gradient.shape[1])
        b.inner(by_out)[:, 0] = gradient
        by_w_out = _by_weight(b, by_out, b.second)
        _through_relu(_by_input(b, by_out, w_out, out=b.inner(by.second)), b.inner(b.second))
        by_w_mid = _by_weight(b, by.second, b.first)
        _through_relu(_by_input(b, by.second, w_mid, out=b.inner(by.first)), b.inner(b.first))
        by_w_in = _by_weight(b, by.first, b.features)
        by_stacked = _by_input(b, by.first, w_in, out=torch.empty_like(b.inner(b.features)))
        by_b_in, by_b_mid, by_b_out = (t.sum((0, 2))[:, None] for t in (by.first, by.second, by_out))
        return by_stacked, None, by_w_in, by_b_in, by_w_mid, by_b_mid, by_w_out, by_b_out


def _convolve(
    b: Buffers, w_in: Tensor, b_in: Tensor, w_mid: Tensor, b_mid: Tensor, w_out: Tensor, b_out: Tensor
) -> Float[Tensor, "codewords slots"]:
    """Run the three convolutions on features that lie in the buffers; weights are [out, kernel · in]."""
    torch.baddbmm(b_in, _each(b, w_in), b.around(b.features), out=b.inner(b.first)).relu_()
    torch.baddbmm(b_mid, _each(b, w_mid), b.around(b.first), out=b.inner(b.second)).relu_()
    return torch.baddbmm(b_out, _each(b, w_out), b.around(b.second))[:, 0]


def _each(b: Buffers, weight: Tensor) -> Float[Tensor, "codewords out seen"]:
    """Return the same weight for every codeword."""
    return weight.expand(b.codewords, -1, -1)


def _by_weight(b: Buffers, gradient: Tensor, x: Tensor) -> Float[Tensor, "out seen"]:
    """Return the gradient of a convolution by its weight."""
    return torch.bmm(b.inner(gradient), b.around(x).mT).sum(0)


def _by_input(b: Buffers, gradient: Tensor, weight: Tensor, *, out: Tensor) -> Tensor:
    """Return the gradient of a convolution by its input, without the padding: the convolution with all turned round."""
    turned = weight.view(len(weight), b.kernel, -1).flip(1).permute(2, 1, 0).flatten(1)
    return torch.bmm(_each(b, turned), b.around(gradient), out=out)


def _drawn(channels_in: int, channels_out: int, kernel: int, rng: torch.Generator) -> tuple[nn.Parameter, nn.Parameter]:
    """Draw weight and bias uniformly within 1/√(inputs), which keeps the scale of what passes through."""
    bound = 1 / math.sqrt(channels_in * kernel)
    weight = torch.rand(channels_out, channels_in, kernel, generator=rng, device=rng.device)
    bias = torch.rand(channels_out, generator=rng, device=rng.device)
    return nn.Parameter(bound * (2 * weight - 1)), nn.Parameter(bound * (2 * bias - 1))


def _through_relu(gradient: Tensor, output: Tensor) -> None:
    """Keep the gradient, in place, where the ReLU let something through."""
    torch.ops.aten.threshold_backward.grad_input(gradient, output, 0, grad_input=gradient)
