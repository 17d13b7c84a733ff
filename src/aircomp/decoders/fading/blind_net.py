r"""A learned schedule for multisource AMP: what each of its iterations does, by how the gains are spread.

    antennas N_r, their correlation r, power error ──► features f ──► a + B f, for each iteration ──► Schedule ──► blind AMP

Iteration $t$ has four numbers: damping, Onsager term, noise of the pseudo-channels, and trust in the likelihood. Each begins
with the value that AMP derives and may move away from it, by a number and by three slopes. The trust matters most where gains
of neighbouring antennas are alike: $N_r$ antennas then tell as much as

$$N_\mathrm{eff} = \frac{N_r^2}{\sum_{ab} r^{2|a-b|}}$$

independent ones. At the end, the counts of a slot are brought to the number of devices, by a share that is learned as well.
Untrained it is `aircomp.decoders.fading.blind`.

Where gains stay for some slots, the second stage of `aircomp.decoders.fading.semi_blind` follows, with the learned codewords:
it learns the gains of a block, which are the memory from slot to slot.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common.radio import GainModel
from aircomp.decoders.fading.multisource import Schedule
from aircomp.decoders.settings import BlindSettings

LAYERS = BlindSettings().iterations
"""Iterations that are learned."""
MOST_ANTENNAS, MOST_POWER_DB = 64, 3.0
"""What it is trained for: more counts as so much."""
_NUMBERS = 4
"""Of each iteration."""
_FEATURES = 3


class BlindNet(nn.Module):
    """What is learned of multisource AMP, beside its codebook: some hundred numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(LAYERS, _NUMBERS))
        self.slope = nn.Parameter(torch.zeros(LAYERS, _NUMBERS, _FEATURES))
        self.sum_offset = nn.Parameter(torch.zeros(()))
        self.sum_slope = nn.Parameter(torch.zeros(_FEATURES))

    def forward(self, antennas: int, model: GainModel) -> Schedule:
        """Return the schedule for so many antennas and such gains."""
        seen = features(antennas, model).to(self.offset)
        damping, *factors = (self.offset + self.slope @ seen).unbind(1)
        plain = Schedule.plain(LAYERS, BlindSettings().damping)
        onsager, variance, trust = (factor.exp() for factor in factors)
        return Schedule(
            plain.damping.to(damping) + damping, onsager, variance, trust, self.sum_offset + self.sum_slope @ seen
        )


def features(antennas: int, model: GainModel) -> Float[Tensor, " features"]:
    """Return what the schedule depends on, each zero where gains are simplest and about one at most."""
    r = model.correlation**2
    # the sum over all pairs of antennas, a diagonal at a time
    pairs = antennas + 2 * sum((antennas - lag) * r**lag for lag in range(1, antennas)) if r else antennas
    power_db = 10 / math.log(10) * math.sqrt(math.log1p(model.power_var))
    return torch.tensor(
        [
            math.log(min(antennas, MOST_ANTENNAS)) / math.log(MOST_ANTENNAS),
            math.log(antennas / pairs),
            min(power_db, MOST_POWER_DB) / MOST_POWER_DB,
        ]
    )
