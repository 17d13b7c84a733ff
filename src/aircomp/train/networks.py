r"""What the trainings of a code, a receiver and a joint code have in common: a loss of one term, and rounds in three parts.

rounds to train on ──► draw ──► batch ──► loss ──► Adam       the loop is `train/loop.py`
rounds to judge by ──► validation batches, drawn once
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common import rng as rngs
from aircomp.common.tensors import moved
from aircomp.train.batches import HasSlots, choose_slots
from aircomp.train.loop import Trained, Training
from aircomp.train.recipe import TrainingSettings
from aircomp.train.step import descend


@runtime_checkable
class NamedRound(HasSlots, Protocol):
    """A round that says where it is from."""

    @property
    def name(self) -> str:
        """Directory and file."""
        ...


M = TypeVar("M", bound=nn.Module)
L = TypeVar("L", bound=Trained)
B = TypeVar("B")
R = TypeVar("R", bound=NamedRound)


@dataclass(frozen=True)
class Loss:
    """What training minimises."""

    total: Float[Tensor, ""]


class NetworkTraining(Training[M, L, B], Generic[M, L, B, R]):
    """One training of networks on rounds of some kind.

    Args:
        settings: The recipe.
        train: Rounds to train on.
        validation: Rounds to choose the best epoch by.
        test: Rounds to report on.
        batch_slots: Slots of a batch.
        train_samples: Slots drawn once from the training rounds; None: all.
        **options: The keywords of `Training`.
    """

    Terms = Loss

    def __init__(
        self,
        settings: TrainingSettings,
        train: list[R],
        validation: list[R],
        test: list[R],
        *,
        batch_slots: int,
        train_samples: int | None = None,
        **options: Any,
    ):
        self.train_rounds, self.test_rounds = train, test
        self.names = {
            part: sorted(saved.name for saved in rounds)
            for part, rounds in (("train", train), ("validation", validation), ("test", test))
        }
        rng = rngs.generator(settings.seed, "training slots")
        super().__init__(
            settings,
            self.untrained(),
            choose_slots(train, train_samples, batch_slots, rng=rng),
            batch_slots,
            self.validation_batches(validation, rng=rngs.generator(settings.seed, "validation slots")),
            [self.told(saved) for saved in [*train, *validation]],
            **options,
        )

    @abstractmethod
    def untrained(self) -> M:
        """Return the networks before the first step."""

    @abstractmethod
    def told(self, saved: R) -> Tensor:
        """Return what tells a round from others."""

    @abstractmethod
    def draw(self, number: int, slots: Tensor, rng: torch.Generator) -> B:
        """Make a batch of some slots of a training round."""

    @abstractmethod
    def validation_batches(self, rounds: Sequence[R], *, rng: torch.Generator) -> list[B]:
        """Make the batches that every epoch is judged by."""

    @abstractmethod
    def loss(self, batch: B, rng: torch.Generator) -> Float[Tensor, ""]:
        """Send a batch; return what training minimises."""

    @abstractmethod
    def wrap(self, networks: M, config: dict[str, Any], training: dict[str, Any]) -> L:
        """Return trained networks with their record."""

    def step(self, number: int, slots: Tensor, rng: torch.Generator) -> Loss:
        """Take a step, or a part of one, on some slots of a round."""
        batch = self.draw(number, slots, rng)
        self.optimizer.zero_grad(set_to_none=True)
        terms = self.judge(batch, rng)
        descend(self.model, self.optimizer, terms.total, self.recipe.clip_norm, self.gradients)
        return terms

    def judge(self, batch: B, rng: torch.Generator) -> Loss:
        """Return the loss of a batch."""
        return Loss(self.loss(moved(batch, self.device), rng))

    def make_layer(self, parameters: dict[str, Tensor], training: dict[str, Any]) -> L:
        """Make what is trained of some parameters."""
        networks = self.untrained().to(self.device)
        networks.load_state_dict(parameters)
        networks.eval().requires_grad_(False)
        return self.wrap(networks, self.recipe.model_dump(mode="json"), training)
