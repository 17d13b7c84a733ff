r"""The 1-D CNN along the codewords that refines the counts of a layer (Sec. III-E, input block, second half).

    six features [slots, codewords] ──► 6 → 32 ──► ReLU ──► 32 → 32 ──► ReLU ──► 32 → 1 ──► correction [slots, codewords]

Its convolutions are computed as shifted matrix products. With the codewords outermost, memory holds
[(codewords + padding) · slots, channels], and the neighbour of every entry lies `slots` rows further: a convolution is the
sum of `kernel` products of this matrix, shifted by whole blocks of rows, with one [in, out] matrix each. Nothing is copied
or rearranged, and the products are tall enough to run near the processor's speed.
"""

import math
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
            workspace: Memory to compute in, where no gradients are needed; kept from call to call by the caller.
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
        if torch.is_grad_enabled():
            stacked = torch.stack([f.expand(slots, -1) for f in features])
            return _Convolutions.apply(stacked, *(t for layer in layers for t in layer))  # pyright: ignore
        buffers = (Workspace() if workspace is None else workspace).take(like, slots, self.weight_in.shape)
        n, pad = like.shape[1], self.weight_in.shape[2] // 2
        for channel, f in zip(buffers.features, features, strict=True):
            channel[pad : pad + n] = f.T
        return _convolve(buffers, layers).T


class Buffers:
    """Zero-padded memory for one number of slots: the features and both hidden maps, codewords outermost."""

    def __init__(self, like: Tensor, slots: int, filters: int, pad: int):
        n = like.shape[1]
        self.shape, self.pad, self.rows = (n, slots), pad, n * slots
        self.features = like.new_zeros(NUM_FEATURES, n + 2 * pad, slots)
        self.first, self.second = self.padded(like, filters), self.padded(like, filters)

    @property
    def feature_rows(self) -> Tensor:
        """The features as [rows, channels]; a matrix product takes a transposed matrix as it is."""
        return self.features.view(NUM_FEATURES, -1).T

    def padded(self, like: Tensor, channels: int) -> Tensor:
        """Return a new map with zeros in the padding; the rest is to be written."""
        border = self.pad * self.shape[1]
        padded = like.new_empty(self.rows + 2 * border, channels)
        padded[:border] = 0
        padded[self.rows + border :] = 0
        return padded

    def inner(self, padded: Tensor) -> Tensor:
        """Return the rows of a map without the padding."""
        first = self.pad * self.shape[1]
        return padded[first : first + self.rows]


class Workspace:
    """Buffers that live from one chunk of slots to the next: allocating them anew takes longer than filling them."""

    def __init__(self):
        self._buffers: dict[int, Buffers] = {}

    def take(self, like: Tensor, slots: int, shape: torch.Size) -> Buffers:
        """Return the buffers for so many slots, with the padding still zero."""
        if slots not in self._buffers:
            self._buffers[slots] = Buffers(like, slots, shape[0], shape[2] // 2)
        return self._buffers[slots]


class _Convolutions(torch.autograd.Function):
    """The network with its backward pass, which is shifted products again; autograd would copy every shift."""

    @staticmethod
    def forward(ctx: Any, stacked: Tensor, *params: Tensor) -> Tensor:
        _, slots, n = stacked.shape
        w_in, b_in, w_mid, b_mid, w_out, b_out = params
        buffers = Buffers(stacked[0], slots, w_in.shape[2], w_in.shape[0] // 2)
        buffers.features[:, buffers.pad : buffers.pad + n] = stacked.mT
        out = _convolve(buffers, [(w_in, b_in), (w_mid, b_mid), (w_out, b_out)])
        ctx.buffers = buffers
        ctx.save_for_backward(w_in, w_mid, w_out)
        return out.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor):  # noqa: ANN205
        w_in, w_mid, w_out = ctx.saved_tensors
        b: Buffers = ctx.buffers
        n, slots = b.shape
        by_out = b.padded(gradient, 1)
        b.inner(by_out).copy_(gradient.T.reshape(-1, 1))
        by_second, by_first = b.padded(gradient, w_mid.shape[2]), b.padded(gradient, w_mid.shape[1])
        by_features = gradient.new_empty(NUM_FEATURES, b.rows)
        by_w_out = _by_weight(b, by_out, b.second, w_out)
        _through_relu(_by_input(b, by_out, w_out, out=b.inner(by_second)), b.inner(b.second))
        by_w_mid = _by_weight(b, by_second, b.first, w_mid)
        _through_relu(_by_input(b, by_second, w_mid, out=b.inner(by_first)), b.inner(b.first))
        by_w_in = _by_weight(b, by_first, b.feature_rows, w_in)
        _by_input(b, by_first, w_in, out=by_features.T)
        by_stacked = by_features.view(-1, n, slots).mT
        return by_stacked, by_w_in, by_first.sum(0), by_w_mid, by_second.sum(0), by_w_out, by_out.sum(0)


def _convolve(b: Buffers, layers: Sequence[tuple[Tensor, Tensor]]) -> Float[Tensor, "codewords slots"]:
    """Run the three convolutions on features that lie in the buffers."""
    (w_in, b_in), (w_mid, b_mid), (w_out, b_out) = layers
    slots = b.shape[1]
    _shifted_product(b.feature_rows, w_in, b_in, slots, out=b.inner(b.first)).relu_()
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


def _by_weight(b: Buffers, gradient: Tensor, x: Tensor, weight: Tensor) -> Float[Tensor, "kernel in out"]:
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
