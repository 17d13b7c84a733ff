"""How large a reproduction is: on embedded digits, on a laptop or a desktop with CIFAR-10, or as in the paper.

At every scale the system is the paper's: its network, integers, no side information, its SNRs. What is smaller is said in
`what`: model, data, rounds, training.
"""

from dataclasses import dataclass, field
from typing import Any

from aircomp.errors import unknown_name

Settings = dict[str, Any]
LEAST_SEEDS = 2
"""One pair of seeds has no spread and tells nothing."""


@dataclass(frozen=True)
class Scale:
    """What the jobs of every result are made of."""

    name: str
    what: str
    """One line for people."""
    preset: str
    """Of federated runs."""
    federated: Settings
    """Settings of federated runs that differ from the preset's."""
    collect_preset: str
    """Of fragments for training and for measuring decoders."""
    collected: Settings
    """Settings of the collections to train on that differ from the preset's."""
    measured: Settings
    """The same for the fragments that decoders are measured on."""
    other_model: Settings
    """The architecture of federated runs that a layer meets without having been trained on it."""
    other_collected: Settings
    """The same architecture where fragments are collected."""
    pretrained: Settings
    """Settings of the paper's training that differ from its preset."""
    central: Settings | None = None
    """Settings of the central training that federated runs begin from; from scratch if None."""
    tested: tuple[int, ...] = ()
    """Rounds after which the runs of Table I are tested under both treatments of buffers; if none, as the preset says."""
    exchanged: Settings = field(default_factory=dict)
    """Local training of the rounds that are sent with every scheme, where it is not that of the measured ones."""
    exchanged_rounds: int = 4
    """How many of the last rounds are sent."""
    slots: int | None = None
    """Slots of each round that decoders are measured on; all if None."""
    seeds_for_points: int = LEAST_SEEDS
    """Pairs of equal seed that a claim about points of test accuracy takes: more where test images are few."""


# The paper's network and losses with a schedule that minutes suffice for: a higher rate that falls along a cosine, and a step
# for every batch instead of one for all of a round's.
_SHORT = {
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "clip_norm": 1.0,
    "data.min_rounds": 3,
    "data.block_batches": 1,
}

SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            name="digits",
            what="embedded digits, a CNN of 6,090 parameters, 24 rounds, layers trained for minutes",
            preset="digits",
            federated={"rounds": 24},
            collect_preset="digits",
            collected={"rounds": 60},
            measured={"rounds": 16},
            other_model={"model.name": "vgg", "model.width": 4},
            other_collected={"model.name": "vgg", "model.width": 4},
            pretrained=_SHORT
            | {
                "epochs": 12,
                "data.train_samples": 4_096,
                "data.validation_samples": 1_024,
                "data.test_samples": 3_000,
            },
            seeds_for_points=10,  # 360 test images: one is .3 points
        ),
        Scale(
            name="laptop",
            what="CIFAR-10, a narrow trained ResNet for federated runs, the paper's for decoders, layers trained for minutes",
            preset="cifar10-laptop",
            federated={},
            central={"epochs": 3},
            collect_preset="cifar10-collect",
            collected={"rounds": 10},
            measured={"rounds": 6},
            other_model={"model.name": "vgg", "model.width": 8},
            other_collected={"model.name": "vgg"},
            pretrained=_SHORT
            | {
                "epochs": 8,
                "data.train_samples": 8_192,
                "data.validation_samples": 2_048,
                "data.test_samples": 6_000,
            },
            slots=2_000,
        ),
        Scale(
            name="desktop",
            what="CIFAR-10 and the paper's ResNet at half resolution with the paper's local training, four rounds from a "
            "trained model, layers trained for half an hour",
            preset="cifar10-desktop",
            federated={"rounds": 4, "evaluate_every": 4},
            central={},
            tested=(1, 2, 3, 4),
            collect_preset="cifar10",
            collected={"rounds": 24, "evaluate_every": 24, "model.stem_stride": 2},
            measured={"rounds": 6, "evaluate_every": 6, "model.stem_stride": 2},
            exchanged={
                "local.steps": 20,
                "local.learning_rate": 0.05,
                "local.data_fraction": 1.0,
            },  # few rounds get far
            exchanged_rounds=2,
            other_model={"model.name": "vgg"},
            other_collected={"model.name": "vgg"},
            pretrained=_SHORT | {"epochs": 24, "data.train_samples": 32_768},
        ),
        Scale(
            name="paper",
            what="CIFAR-10 and the paper's settings throughout; for a GPU",
            preset="cifar10",
            federated={},
            collect_preset="cifar10",
            collected={"rounds": 100},
            measured={"rounds": 100},
            other_model={"model.name": "vgg"},
            other_collected={"model.name": "vgg"},
            pretrained={},
        ),
    )
}


def scale_of(name: str) -> Scale:
    """Return a scale by name."""
    if name not in SCALES:
        raise unknown_name("scale", name, list(SCALES))
    return SCALES[name]
