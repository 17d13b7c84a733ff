"""A model as two flat vectors: its trainable parameters, which travel over the radio, and its buffers, which do not."""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aircomp.errors import ConfigError


class FlatModel:
    """A module whose trainable parameters and their gradients are views of one vector each.

    An update is then one subtraction and an optimiser step a few operations on whole vectors, instead of one for
    each of the module's tensors. The order is that of `module.parameters()`, each tensor in C order; a parameter that
    several layers share is there once. Frozen parameters, and buffers that are not floating-point, keep their values.

    A model with parameters in half precision has copies in place of views: it is sent in float32, and rounded when loaded.

    Args:
        module: Its parameters become views.
        idle: Names of trainable parameters that no gradient reaches; they are left out, as if they were frozen.
    """

    def __init__(self, module: nn.Module, *, idle: Collection[str] = ()):
        self.module, self.idle = module, tuple(idle)
        trainable = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        sent = [(name, p) for name, p in trainable if name not in self.idle]
        self._idle = [(name, p) for name, p in trainable if name in self.idle]
        self._sent = [p for _, p in sent]
        self.layer_names = [name for name, _ in sent]
        self.layer_shapes = tuple(tuple(p.shape) for _, p in sent)
        self.layer_sizes = [p.numel() for _, p in sent]
        self.has_views = {p.dtype for p in self._sent} in ({torch.float32}, {torch.float64})
        self.weights: Float[Tensor, " params"] = torch.cat([self._wide(p.detach()).reshape(-1) for p in self._sent])
        self.gradient: Float[Tensor, " params"] = self.weights.new_zeros(self.num_params if self.has_views else 0)
        start = 0
        for p in self._sent if self.has_views else ():
            p.data = self.weights[start : start + p.numel()].view(p.shape)
            p.grad = self.gradient[start : start + p.numel()].view(p.shape)
            start += p.numel()
        # places and not tensors: a module may put a new tensor there in its forward pass
        places = {name: _place(module, name) for name, _ in module.named_buffers()}
        self._buffers = [place for place in places.values() if getattr(*place).is_floating_point()]
        self._counters = {k: place for k, place in places.items() if not getattr(*place).is_floating_point()}
        self._counted = {name: getattr(*place).clone() for name, place in self._counters.items()}

    @property
    def num_params(self) -> int:
        """Number of parameters, W in the paper."""
        return self.weights.numel()

    def parameters(self) -> list[nn.Parameter]:
        """Return those that are sent."""
        return list(self._sent)

    def _wide(self, p: Tensor) -> Tensor:
        return p if self.has_views else p.float()

    def read_weights(self) -> Float[Tensor, " params"]:
        """Return the parameters as one vector, which later steps may change."""
        return self.weights if self.has_views else torch.cat([p.detach().float().reshape(-1) for p in self._sent])

    def zero_gradient(self) -> None:
        """Forget the gradient of the last step."""
        self.gradient.zero_()
        for p in () if self.has_views else self._sent:
            p.grad = None

    def read_buffers(self) -> Float[Tensor, " buffers"]:
        """Return a copy of all floating-point buffers (running means and variances) as one vector."""
        if not self._buffers:
            return self.weights.new_zeros(0)
        return torch.cat([getattr(*place).reshape(-1).to(self.weights.dtype) for place in self._buffers])

    @torch.no_grad()
    def load(self, weights: Float[Tensor, " params"], buffers: Float[Tensor, " buffers"]) -> None:
        """Set parameters and buffers from flat vectors, and counters to what they were at the start."""
        self.weights.copy_(weights)
        start = 0
        for p in () if self.has_views else self._sent:
            p.copy_(weights[start : start + p.numel()].view(p.shape))
            start += p.numel()
        start = 0
        for place in self._buffers:
            b: Tensor = getattr(*place)
            b.copy_(buffers[start : start + b.numel()].view(b.shape))
            start += b.numel()
        for name, place in self._counters.items():
            getattr(*place).copy_(self._counted[name])

    def fixed(self) -> dict[str, Tensor]:
        """Return what training never changes: frozen parameters, those without a gradient, counters as of `load`."""
        parameters = {name: p.detach() for name, p in self.module.named_parameters() if name not in self.layer_names}
        return parameters | self._counted

    def check_idle(self) -> None:
        """Raise if a gradient has reached a parameter that was left out because it had none at the start.

        Raises:
            ConfigError: Naming the parameter.
        """
        for name, p in self._idle:
            if p.grad is not None:
                raise ConfigError(
                    f"the parameter {name} had no gradient at the start, so it is not sent, but it has one now; freeze it "
                    "with requires_grad_(False), or let every forward pass use it (adding 0 * its sum is enough)"
                )

    def layer_at(self, position: int) -> str:
        """Return the name of the parameter tensor that holds the flat `position`."""
        for name, size in zip(self.layer_names, self.layer_sizes, strict=True):
            if position < size:
                return name
            position -= size
        raise IndexError(f"position {position} lies beyond the {self.num_params} parameters")

    def slot_layers(self, fragment_length: int) -> Int[Tensor, " slots"]:
        """Return for each slot the index of the parameter tensor that its first entry belongs to."""
        return slot_layers(self.layer_sizes, fragment_length)


def slot_layers(sizes: Sequence[int], fragment_length: int) -> Int[Tensor, " slots"]:
    """Return for each slot the index of the parameter tensor, of such sizes, that its first entry belongs to."""
    ends = torch.tensor(list(sizes)).cumsum(0)
    starts = torch.arange(0, int(ends[-1]), fragment_length)
    return torch.searchsorted(ends, starts, right=True)


def _place(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    owner, _, attribute = name.rpartition(".")
    return module.get_submodule(owner), attribute
