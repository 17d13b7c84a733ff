"""Trainings of seconds, one of each kind of networks, and what they leave on disk."""

from pathlib import Path
from typing import Any

from aircomp.common.artefact import read_json
from aircomp.layer.analog_code import AnalogCode
from aircomp.layer.blind_net import BlindLayer
from aircomp.layer.joint_code import JointLayer
from aircomp.train.blind import pretrain_blind
from aircomp.train.code import pretrain_code
from aircomp.train.joint import pretrain_joint
from aircomp.train.recipe import BlindTrainingSettings, CodeSettings, JointTrainingSettings
from helpers.records import read_lines, without_times

CODE = CodeSettings.parse(
    {
        "epochs": 2,
        "learning_rate": 1e-2,
        "codeword_length": 8,
        "schedule": "cosine",
        "code": {"width": 8},
        "data": {"batch_slots": 20, "validation_samples": 40, "devices_high": 12},
    }
)
RECEIVER = BlindTrainingSettings.parse(
    {
        "epochs": 2,
        "learning_rate": 2e-2,
        "codeword_length": 8,
        "schedule": "cosine",
        "samples_per_epoch": 100,
        "fading": {"antennas": 4},
        "data": {"batch_slots": 20, "validation_samples": 40, "devices_high": 8},
    }
)
JOINT = JointTrainingSettings.parse(
    {
        "epochs": 2,
        "learning_rate": 3e-2,
        "codeword_length": 8,
        "schedule": "cosine",
        "samples_per_epoch": 100,
        "joint": {"width": 4},
        "data": {"batch_slots": 20, "validation_samples": 40, "snr_db_low": -5.0, "snr_db_high": 0.0},
    }
)
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "code": (pretrain_code, CODE, AnalogCode),
    "receiver": (pretrain_blind, RECEIVER, BlindLayer),
    "joint": (pretrain_joint, JOINT, JointLayer),
}
"""How each is trained, with which settings, and what comes of it."""


def files_of(out: Path) -> tuple[bytes, dict[str, Any], list[dict[str, Any]]]:
    """Return what a training wrote, but for times."""
    description = read_json(out / "layer.json")
    description["training"].pop("seconds")
    return (out / "layer.safetensors").read_bytes(), description, without_times(read_lines(out / "metrics.jsonl"))
