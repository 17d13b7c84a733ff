"""What the server does with the aggregate: the next global model and the optimiser's state (Sec. II-B, Sec. IV)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.errors import ConfigError
from aircomp.server.settings import Adaptive, FedAvgM, ServerSettings


@dataclass(frozen=True)
class ServerState:
    """What an optimiser carries from round to round."""

    first: Float[Tensor, " params"] | None
    """Momentum (fedavgm) or first moment (fedadam, fedyogi)."""
    second: Float[Tensor, " params"] | None
    """Second moment (fedadam, fedyogi)."""
    step: int
    """Steps taken so far."""


def initial_state(settings: ServerSettings, num_params: int, *, dtype: torch.dtype = torch.float32) -> ServerState:
    """Return the state before the first step: momentum 0, second moment τ²; `dtype` is that of the weights."""
    match settings:
        case FedAvgM():
            return ServerState(torch.zeros(num_params, dtype=dtype), None, 0)
        case Adaptive():
            first = torch.zeros(num_params, dtype=dtype)
            return ServerState(first, torch.full_like(first, settings.adaptivity**2), 0)
        case _:
            return ServerState(None, None, 0)


def step(
    weights: Float[Tensor, " params"], update: Float[Tensor, " params"], state: ServerState, settings: ServerSettings
) -> tuple[Float[Tensor, " params"], ServerState]:
    r"""Return the next global model and the next state; nothing is changed in place.

    With the aggregate $g$ (the direction of descent, hence the plus) and the global learning rate $\eta$:

    * fedavg: $w \leftarrow w + \eta g$ (Sec. II-B)
    * fedavgm: $m \leftarrow \mu m + g$, $w \leftarrow w + \eta m$ (Hsu et al. 2019)
    * fedadam, fedyogi: $m \leftarrow \beta_1 m + (1 - \beta_1) g$, $w \leftarrow w + \eta m / (\sqrt v + \tau)$, where
      fedadam has $v \leftarrow \beta_2 v + (1 - \beta_2) g^2$ and
      fedyogi has $v \leftarrow v - (1 - \beta_2) g^2 \operatorname{sign}(v - g^2)$

    The last two follow Reddi et al. 2021, Algorithm 2: no bias correction, $v = \tau^2$ at the start, and $g^2$ is the
    square of the aggregate, not of $m$ (an early version of that paper could be read so; its authors corrected it).
    Flower differs: its second moment starts at zero, and its FedAdam has a bias-corrected learning rate.
    """
    eta = settings.learning_rate
    match settings:
        case FedAvgM():
            first = settings.momentum * _moment(state.first, settings) + update
            return weights + eta * first, ServerState(first, None, state.step + 1)
        case Adaptive():
            first = settings.beta1 * _moment(state.first, settings) + (1 - settings.beta1) * update
            second = _second_moment(_moment(state.second, settings), update.square(), settings)
            weights = weights + eta * first / (second.sqrt() + settings.adaptivity)
            return weights, ServerState(first, second, state.step + 1)
        case _:
            return weights + eta * update, ServerState(None, None, state.step + 1)


def _second_moment(
    v: Float[Tensor, " params"], squares: Float[Tensor, " params"], settings: Adaptive
) -> Float[Tensor, " params"]:
    if settings.kind == "fedadam":
        return settings.beta2 * v + (1 - settings.beta2) * squares
    # Stays non-negative: only where v exceeds the squares is a part of the squares taken away.
    return v - (1 - settings.beta2) * squares * torch.sign(v - squares)


def _moment(moment: Tensor | None, settings: ServerSettings) -> Tensor:
    if moment is None:
        raise ConfigError(
            f"the server state was not made for kind = {settings.kind!r}; "
            "start from initial_state with the same settings"
        )
    return moment
