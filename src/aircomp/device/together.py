"""Several devices trained at once: their copies of the model side by side, as the groups of one wide model.

    images of device 1 ─┐                ┌─ logits of device 1
    images of device 2 ─┼─► wide model ──┼─ logits of device 2      every convolution has one group of channels a device
    images of device 3 ─┘                └─ logits of device 3

Nothing passes from one group to another, so this is `train` for each of the devices: the same mathematics, other rounding.
It is faster because a third of a small model's step is the cost of starting some hundred kernels, which devices now share.
"""

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.device.local import LocalResult, Samples, batch_indices, clip_factor, reduced, sgd_step
from aircomp.device.settings import LocalSettings
from aircomp.device.update import FlatModel

WIDTHS = {
    nn.Conv2d: ("in_channels", "out_channels", "groups"),
    nn.BatchNorm2d: ("num_features",),
    nn.GroupNorm: ("num_groups", "num_channels"),
}
"""What is multiplied when a layer holds several copies of itself."""


def can_widen(module: nn.Module) -> bool:
    """Tell whether a model can stand beside copies of itself: those that have an attribute `copies` say so."""
    return hasattr(module, "copies")


def train_together(
    model: "WideModel",
    weights: Float[Tensor, " params"],
    buffers: Sequence[Float[Tensor, " buffers"]],
    samples: Sequence[Samples],
    settings: LocalSettings,
    *,
    rngs: Sequence[torch.Generator],
    round_index: int = 0,
) -> list[LocalResult]:
    """Train one device a copy, as `aircomp.device.local.train` does one by one; all have the same sizes of batches.

    Args:
        model: The copies.
        weights: The global ones.
        buffers: Of each device.
        samples: Images and labels of each device.
        settings: How to train, by SGD.
        rngs: One for each device.
        round_index: Sets the learning rate.
    """
    model.load(weights, buffers)
    model.module.train()
    velocity = torch.zeros_like(model.weights) if settings.momentum else None
    rate = settings.rate(round_index)
    totals = torch.zeros(model.copies, device=weights.device)
    schedules = [batch_indices(len(own), settings, rng=rng) for own, rng in zip(samples, rngs, strict=True)]
    for batches in zip(*schedules, strict=True):
        drawn = [own.batch(places, rng) for own, places, rng in zip(samples, batches, rngs, strict=True)]
        inputs, labels = zip(*drawn, strict=True)
        wanted = torch.stack(labels, dim=1).to(weights.device)
        with reduced(weights.device, settings.precision):
            logits = model.module(torch.cat(inputs, dim=1).to(weights.device))
        logits = logits.to(weights.dtype).unflatten(1, (model.copies, -1)).flatten(0, 1)
        losses = F.cross_entropy(logits, wanted.flatten(), reduction="none").view_as(wanted).mean(dim=0)
        model.gradient.zero_()
        losses.sum().backward()
        if settings.clip_norm:
            model.clip_gradients(settings.clip_norm)
        sgd_step(model.weights, model.gradient, velocity, settings, rate)
        totals += losses.detach()
    num_samples, means = sum(len(b) for b in schedules[0]), (totals / len(schedules[0])).tolist()
    after = zip(model.read_weights() - weights, model.read_buffers(), means, strict=True)
    return [LocalResult(update, left, loss, num_samples) for update, left, loss in after]


class WideModel:
    """Copies of a model side by side; all their parameters are views of one vector, and so are the gradients.

    The vector holds one tensor of all copies after the other. Weights of convolutions lie with their channels last, as
    the images do: otherwise each would be copied in every step.

    Args:
        model: What is copied; see `can_widen`.
        copies: Number of copies.
    """

    def __init__(self, model: FlatModel, copies: int):
        self.copies, self.module = copies, widen(model.module, copies)
        self._parameters = [p for p in self.module.parameters() if p.requires_grad]
        self._buffers = [b for b in self.module.buffers() if b.is_floating_point()]
        self.weights: Float[Tensor, " all_params"] = model.weights.new_zeros(copies * model.num_params)
        self.gradient: Float[Tensor, " all_params"] = torch.zeros_like(self.weights)
        sizes = [p.numel() for p in self._parameters]
        views = zip(self._parameters, self.weights.split(sizes), self.gradient.split(sizes), strict=True)
        for parameter, weights, gradient in views:
            parameter.data, parameter.grad = _shaped(weights, parameter.shape), _shaped(gradient, parameter.shape)

    @torch.no_grad()
    def load(self, weights: Float[Tensor, " params"], buffers: Sequence[Float[Tensor, " buffers"]]) -> None:
        """Set the parameters of every copy to the same `weights`, and each copy's buffers to its own."""
        start = 0
        for part in self._by_copy(self._parameters):
            part.copy_(weights[start : (start := start + part[0].numel())].view_as(part[0]))
        start = 0
        for part in self._by_copy(self._buffers):
            block = slice(start, start := start + part[0].numel())
            part.copy_(torch.stack([own[block].view_as(part[0]) for own in buffers]))

    @torch.no_grad()
    def read_weights(self) -> Float[Tensor, "copies params"]:
        """Return each copy's parameters as one vector, in the order of `FlatModel.weights`."""
        return torch.cat([part.flatten(1) for part in self._by_copy(self._parameters)], dim=1)

    def read_buffers(self) -> Float[Tensor, "copies buffers"]:
        """Return each copy's buffers as one vector, in the order of `FlatModel.read_buffers`."""
        empty = self.weights.new_zeros(self.copies, 0)
        return torch.cat([empty, *(part.flatten(1) for part in self._by_copy(self._buffers))], dim=1)

    @torch.no_grad()
    def clip_gradients(self, limit: float) -> None:
        """Shorten each copy's gradient to at most the norm `limit`."""
        parts = self._by_copy([p.grad for p in self._parameters if p.grad is not None])
        norms = torch.stack([part.flatten(1).norm(dim=1) for part in parts]).norm(dim=0)
        for part in parts:
            part.mul_(clip_factor(norms, limit).view(-1, *[1] * (part.dim() - 1)))

    def _by_copy(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [tensor.detach().unflatten(0, (self.copies, -1)) for tensor in tensors]


def widen(module: nn.Module, copies: int) -> nn.Module:
    """Return a model that holds several copies of `module` as groups of channels."""
    wide = copy.deepcopy(module)
    for tensor in (*wide.parameters(), *wide.buffers()):
        if tensor.dim():  # all but counters
            tensor.data = tensor.data.repeat(copies, *[1] * (tensor.dim() - 1))
            tensor.grad = None
    for name, part in list(wide.named_modules()):
        for width in WIDTHS.get(type(part), ()):
            setattr(part, width, copies * getattr(part, width))
        if can_widen(part):
            setattr(part, "copies", copies)  # noqa: B010 - to the type checker a module has layers and tensors only
        if isinstance(part, nn.Linear):
            wide.set_submodule(name, _Linears(part, copies))
    return wide


class _Linears(nn.Module):
    """A linear layer for each copy; its weights are stacked already."""

    def __init__(self, linear: nn.Linear, copies: int):
        super().__init__()
        self.weight, self.bias, self.copies = linear.weight, linear.bias, copies

    def forward(self, x: Float[Tensor, "batch features"]) -> Float[Tensor, "batch outputs"]:
        """Return the outputs of all copies side by side."""
        x = x.unflatten(1, (self.copies, -1)).transpose(0, 1)
        weight = self.weight.unflatten(0, (self.copies, -1)).transpose(1, 2)
        return torch.bmm(x, weight).transpose(0, 1).flatten(1) + self.bias


def _shaped(block: Float[Tensor, " entries"], shape: torch.Size) -> Tensor:
    if len(shape) != 4:
        return block.view(shape)
    out, into, height, width = shape
    return block.view(out, height, width, into).permute(0, 3, 1, 2)
