"""A model as two flat vectors: its parameters, which travel over the radio, and its buffers, which do not."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class FlatModel:
    """A module whose parameters and gradients are views of one vector each.

    An update is then one subtraction and an optimiser step a few operations on whole vectors, instead of one for
    each of the module's tensors. The order is that of `module.parameters()`, each tensor in C order.
    """

    def __init__(self, module: nn.Module):
        self.module = module
        parameters = list(module.named_parameters())
        self.layer_names = [name for name, _ in parameters]
        self.layer_sizes = [p.numel() for _, p in parameters]
        first = parameters[0][1]
        self.weights: Float[Tensor, " params"] = torch.cat(
            [p.detach().reshape(-1).to(first.dtype) for _, p in parameters]
        )
        self.gradient: Float[Tensor, " params"] = torch.zeros_like(self.weights)
        start = 0
        for _, p in parameters:
            p.data = self.weights[start : start + p.numel()].view(p.shape)
            p.grad = self.gradient[start : start + p.numel()].view(p.shape)
            start += p.numel()
        self._buffers = [b for b in module.buffers() if b.is_floating_point()]

    @property
    def num_params(self) -> int:
        """Number of parameters, W in the paper."""
        return self.weights.numel()

    def read_buffers(self) -> Float[Tensor, " buffers"]:
        """Return a copy of all floating-point buffers (running means and variances) as one vector."""
        if not self._buffers:
            return self.weights.new_zeros(0)
        return torch.cat([b.reshape(-1) for b in self._buffers])

    @torch.no_grad()
    def load(self, weights: Float[Tensor, " params"], buffers: Float[Tensor, " buffers"]) -> None:
        """Set parameters and buffers from flat vectors."""
        self.weights.copy_(weights)
        start = 0
        for b in self._buffers:
            b.copy_(buffers[start : start + b.numel()].view(b.shape))
            start += b.numel()

    def layer_at(self, position: int) -> str:
        """Return the name of the parameter tensor that holds the flat `position`."""
        for name, size in zip(self.layer_names, self.layer_sizes, strict=True):
            if position < size:
                return name
            position -= size
        raise IndexError(f"position {position} lies beyond the {self.num_params} parameters")

    def slot_layers(self, fragment_length: int) -> Int[Tensor, " slots"]:
        """Return for each slot the index of the parameter tensor that its first entry belongs to."""
        ends = torch.tensor(self.layer_sizes).cumsum(0)
        starts = torch.arange(0, self.num_params, fragment_length)
        return torch.searchsorted(ends, starts, right=True)
