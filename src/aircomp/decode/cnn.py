r"""The 1-D CNN along the codewords that refines the counts of a layer (Sec. III-E, input block, second half).

    six features [slots, codewords] ──► 6 → 32 ──► ReLU ──► 32 → 32 ──► ReLU ──► 32 → 1 ──► correction [slots, codewords]

Its convolutions are computed as shifted matrix products. With the codewords outermost, memory holds
[(codewords + padding) · slots, channels], and the neighbour of every entry lies `slots` rows further: a convolution is the
sum of `kernel` products of this matrix, shifted by whole blocks of rows, with one [in, out] matrix each. Nothing is copied
or rearranged, and the products are tall enough to run near the processor's speed.
"""

import math
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

NUM_FEATURES = 6


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
        layers = [
            (w.to(like).permute(2, 1, 0).contiguous(), b.to(like))
            for w, b in (
                (self.weight_in, self.bias_in),
                (self.weight_mid, self.bias_mid),
                (self.weight_out, self.bias_out),
            )
        ]
        workspace = Workspace() if workspace is None else workspace
        if torch.is_grad_enabled():
            stacked = torch.stack([f.expand(slots, -1) for f in features])
            return _Convolutions.apply(stacked, workspace, *(t for layer in layers for t in layer))
        lease = workspace.borrow(like, slots, self.weight_in.shape[0], self.weight_in.shape[2])
        for channel, f in zip(lease.buffers.inner_features, features, strict=True):
            channel.copy_(f.T)
        return _convolve(lease.buffers, layers).T


class Buffers:
    """Zero-padded memory for one number of slots: the features and both hidden maps, codewords outermost."""

    def __init__(self, like: Tensor, slots: int, filters: int, kernel: int):
        self.shape, self.rows = (like.shape[1], slots), like.shape[1] * slots
        self.border = kernel // 2 * slots
        self.features = like.new_zeros(NUM_FEATURES, self.rows + 2 * self.border)
        self.first = like.new_zeros(self.rows + 2 * self.border, filters)
        self.second = torch.zeros_like(self.first)

    @property
    def inner_features(self) -> Float[Tensor, "channels codewords slots"]:
        """The features without the padding."""
        return self.features[:, self.border : self.border + self.rows].view(NUM_FEATURES, *self.shape)

    def inner(self, padded: Tensor) -> Tensor:
        """Return the rows of a map without the padding."""
        return padded[self.border : self.border + self.rows]


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

    def borrow(self, like: Tensor, slots: int, filters: int, kernel: int) -> Lease:
        """Return a lease on buffers whose padding is zero and whose inside is anything."""
        key = (like.shape[1], slots, filters, kernel, like.dtype, like.device)
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
    """The network with its backward pass, which is shifted products again; autograd would copy every shift."""

    @staticmethod
    def forward(ctx: Any, stacked: Tensor, workspace: Workspace, *params: Tensor) -> Tensor:
        w_in, b_in, w_mid, b_mid, w_out, b_out = params
        lease = workspace.borrow(stacked[0], stacked.shape[1], w_in.shape[2], w_in.shape[0])
        lease.buffers.inner_features.copy_(stacked.mT)
        out = _convolve(lease.buffers, [(w_in, b_in), (w_mid, b_mid), (w_out, b_out)])
        ctx.workspace, ctx.lease = workspace, lease
        ctx.save_for_backward(w_in, w_mid, w_out)
        return out.T

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  (what the decorator makes of it)
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (gradient,) = grad_outputs
        w_in, w_mid, w_out = ctx.saved_tensors
        b: Buffers = ctx.lease.buffers
        lease = ctx.workspace.borrow(gradient, len(gradient), w_in.shape[2], w_in.shape[0])
        by: Buffers = lease.buffers  # the gradients have the same shapes
        by_out = gradient.new_zeros(len(b.first), 1)
        b.inner(by_out).copy_(gradient.T.reshape(-1, 1))
        by_w_out = _by_weight(b, by_out, b.second, w_out)
        _through_relu(_by_input(b, by_out, w_out, out=b.inner(by.second)), b.inner(b.second))
        by_w_mid = _by_weight(b, by.second, b.first, w_mid)
        _through_relu(_by_input(b, by.second, w_mid, out=b.inner(by.first)), b.inner(b.first))
        by_w_in = _by_weight(b, by.first, b.features.T, w_in)
        _by_input(b, by.first, w_in, out=b.inner(by.features.T))
        by_stacked = by.inner_features.mT.contiguous()
        return by_stacked, None, by_w_in, by.first.sum(0), by_w_mid, by.second.sum(0), by_w_out, by_out.sum(0)


def _convolve(b: Buffers, layers: Sequence[tuple[Tensor, Tensor]]) -> Float[Tensor, "codewords slots"]:
    """Run the three convolutions on features that lie in the buffers."""
    (w_in, b_in), (w_mid, b_mid), (w_out, b_out) = layers
    slots = b.shape[1]
    _shifted_product(b.features.T, w_in, b_in, slots, out=b.inner(b.first)).relu_()
    _shifted_product(b.first, w_mid, b_mid, slots, out=b.inner(b.second)).relu_()
    out = b_out.repeat(b.rows)
    for k, w in enumerate(w_out):  # matrix-vector products: much faster than matrix products with one column
        out.addmv_(b.second[k * slots : k * slots + b.rows], w[:, 0])
    return out.view(b.shape)


def _shifted_product(x: Tensor, weight: Tensor, bias: Tensor, slots: int, *, out: Tensor) -> Tensor:
    """Convolve [rows + padding, in] with [kernel, in, out]."""
    rows = len(out)
    torch.addmm(bias, x[:rows], weight[0], out=out)
    for k in range(1, len(weight)):
        out.addmm_(x[k * slots : k * slots + rows], weight[k])
    return out


def _by_weight(b: Buffers, gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of a convolution by its weight."""
    slots, inner = b.shape[1], b.inner(gradient)
    return torch.stack([x[k * slots : k * slots + b.rows].T @ inner for k in range(len(weight))])


def _by_input(b: Buffers, gradient: Tensor, weight: Tensor, *, out: Tensor) -> Tensor:
    """Return the gradient of a convolution by its input, without the padding."""
    slots, last = b.shape[1], len(weight) - 1
    torch.mm(gradient[last * slots :], weight[0].T, out=out)
    for k in range(1, last + 1):
        out.addmm_(gradient[(last - k) * slots :][: b.rows], weight[k].T)
    return out


def _drawn(channels_in: int, channels_out: int, kernel: int, rng: torch.Generator) -> tuple[nn.Parameter, nn.Parameter]:
    """Draw weight and bias uniformly within 1/√(inputs), which keeps the scale of what passes through."""
    bound = 1 / math.sqrt(channels_in * kernel)
    weight = torch.rand(channels_out, channels_in, kernel, generator=rng, device=rng.device)
    bias = torch.rand(channels_out, generator=rng, device=rng.device)
    return nn.Parameter(bound * (2 * weight - 1)), nn.Parameter(bound * (2 * bias - 1))


def _through_relu(gradient: Tensor, output: Tensor) -> None:
    """Keep the gradient, in place, where the ReLU let something through."""
    torch.ops.aten.threshold_backward.grad_input(gradient, output, 0, grad_input=gradient)
