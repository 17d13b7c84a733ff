"""How much memory a federated run needs at the least, from its settings and the size of its model alone."""

import math

from aircomp.federation.experiment import Experiment
from aircomp.federation.settings import Bernoulli, Fixed, ParticipationSettings, Uniform
from aircomp.federation.state import MEMORIES_IN_RAM
from aircomp.quantize.fragment import num_slots

FLOAT, INTEGER = 4, 8  # bytes
WORKER = 16_000_000
"""Bytes that a forked process does not share with its parent."""


def memory_needs(experiment: Experiment, num_params: int) -> dict[str, int]:
    """Return bytes by what they are for, for `aircomp.common.memory.check_memory`."""
    active = _mean_active(experiment.participation, experiment.devices.total)
    needs = {
        "the model and its gradient (model.width, model.blocks)": 2 * num_params * FLOAT,
        "the updates of active devices (participation, model.width)": active * num_params * FLOAT,
    }
    if experiment.engine == "processes" and experiment.workers > 1:
        needs["worker processes (workers)"] = experiment.workers * WORKER
    if experiment.feedback.kind != "off":
        taken_part = _taken_part(experiment.devices.total, active, experiment.rounds)
        needs["error memories (devices.total, model.width)"] = min(taken_part * num_params * FLOAT, MEMORIES_IN_RAM)
    length, uses = experiment.fragment_length, getattr(experiment.uplink, "codeword_length", 0)
    codewords = getattr(getattr(experiment.uplink, "quantize", None), "num_codewords", 0)
    if uses:
        slots = num_slots(num_params, length)
        needs["fragments (uplink.quantize.fragment_length)"] = (active + 1) * slots * length * FLOAT
        needs["received slots (uplink.codeword_length)"] = slots * uses * FLOAT
        needs["counts (uplink.quantize.num_codewords, uplink.quantize.fragment_length)"] = (
            slots * codewords * 2 * INTEGER
        )
        needs["codebooks (uplink.quantize.num_codewords, uplink.codeword_length)"] = codewords * (length + uses) * FLOAT
    return needs


def _mean_active(participation: ParticipationSettings, total: int) -> int:
    match participation:
        case Uniform():
            return (participation.low + participation.high) // 2
        case Fixed():
            return participation.number
        case Bernoulli():
            return int(participation.probability * total)
        case _:
            return 0  # not known without reading it


def _taken_part(total: int, active: int, rounds: int) -> int:
    """Return how many devices have taken part at least once after some rounds, on average."""
    if active >= total:
        return total if rounds else 0
    return int(-total * math.expm1(min(rounds, 10**9) * math.log1p(-active / total)))
