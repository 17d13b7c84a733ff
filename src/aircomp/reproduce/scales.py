"""How large a reproduction is: on embedded digits, on a laptop with CIFAR-10, or as in the paper."""

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
    snr_db: tuple[float, ...]
    """Of federated runs."""
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
    pretrain_preset: str
    pretrained: Settings = field(default_factory=dict)
    decode_snr_db: tuple[float, ...] = (0.0, 3.0, 5.0, 10.0, 15.0, 20.0)
    variants_snr_db: tuple[float, ...] = (0.0, 5.0, 10.0)
    """Of the federated runs that compare variants of training."""
    noise_lengths: tuple[float, ...] = (10.0,)
    """How long the noise of corrupted devices is, in lengths of their updates; the paper does not tell."""
    central: Settings | None = None
    """Settings of the central training that federated runs begin from; from scratch if None."""
    tested: tuple[int, ...] = ()
    """Rounds after which the runs of Table I are tested under every treatment of buffers; if none, as the preset says."""
    steps: tuple[int, ...] = ()
    """Local steps of the runs that are tested so, the preset's first."""
    slots: int | None = None
    """Slots of each round that decoders are measured on; all if None."""
    seeds_for_points: int = LEAST_SEEDS
    """Pairs of equal seed that a claim about points of test accuracy takes: more where test images are few."""


# training on the few slots of digits: small batches, as many steps as fit into a minute
_SHORT_DIGITS = {
    "epochs": 8,
    "samples_per_epoch": 2_048,
    "data.validation_samples": 1_024,
    "data.test_samples": 3_000,
    "data.batch_slots": 128,
}

# the paper's configuration with a schedule that twenty-five minutes on one core suffice for
_PAPER_SHORT = {
    "epochs": 24,
    "samples_per_epoch": 32_768,
    "schedule": "cosine",
    "learning_rate": 1e-3,
    "clip_norm": 1.0,
    "data.train_samples": None,
    "data.batch_slots": 256,
    "data.snr_db_low": -5.0,
    "data.snr_db_high": 18.0,
}

SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            name="digits",
            what="embedded digits, a CNN of 6,090 parameters, 24 rounds; an hour for everything on two cores",
            preset="digits",
            federated={"rounds": 24},
            snr_db=(-5.0, 0.0, 3.0, 5.0, 10.0, 15.0, 20.0),
            variants_snr_db=(0.0, 10.0),
            noise_lengths=(1.0, 10.0),
            collect_preset="digits",
            collected={"rounds": 60},
            measured={"rounds": 16},
            other_model={"model.name": "vgg", "model.width": 4},
            other_collected={"model.name": "vgg", "model.width": 4},
            pretrain_preset="short",
            pretrained=_SHORT_DIGITS,
            seeds_for_points=10,  # 360 test images: one is .3 points
        ),
        Scale(
            name="laptop",
            what="CIFAR-10, a narrow trained ResNet for federated runs, the paper's for decoders; 90 minutes on two cores",
            preset="cifar10-laptop",
            federated={},
            snr_db=(-5.0, 0.0, 5.0, 10.0),
            central={"epochs": 3},
            variants_snr_db=(5.0,),
            collect_preset="cifar10-collect",
            collected={"rounds": 10},
            measured={"rounds": 6},
            other_model={"model.name": "vgg", "model.width": 8},
            other_collected={"model.name": "vgg"},
            pretrain_preset="short",
            pretrained={"epochs": 8, "samples_per_epoch": 6_144, "data.test_samples": 6_000},
            slots=2_000,
        ),
        Scale(
            name="desktop",
            what="CIFAR-10 and the paper's ResNet at half resolution, from a trained model; four hours on two cores",
            preset="cifar10-desktop",
            federated={"evaluate_every": 12},
            snr_db=(0.0, 3.0, 5.0, 10.0, 15.0, 20.0),
            collect_preset="cifar10-collect",
            collected={"rounds": 16, "model.stem_stride": 2},
            measured={"rounds": 6, "model.stem_stride": 2},
            other_model={"model.name": "vgg"},
            other_collected={"model.name": "vgg"},
            pretrain_preset="paper",
            pretrained=_PAPER_SHORT,
            central={},
            tested=(8, 10, 12),
            steps=(10, 40, 150),
        ),
        Scale(
            name="paper",
            what="CIFAR-10 and the paper's settings throughout; for a GPU",
            preset="cifar10",
            federated={},
            snr_db=(0.0, 3.0, 5.0, 10.0, 15.0, 20.0),
            collect_preset="cifar10",
            collected={"rounds": 100},
            measured={"rounds": 100},
            other_model={"model.name": "vgg"},
            other_collected={"model.name": "vgg"},
            pretrain_preset="paper",
        ),
    )
}


def scale_of(name: str) -> Scale:
    """Return a scale by name."""
    if name not in SCALES:
        raise unknown_name("scale", name, list(SCALES))
    return SCALES[name]
