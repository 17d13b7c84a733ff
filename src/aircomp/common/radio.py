"""What the channel shares with schemes and with the receivers that are planned for it."""

from dataclasses import dataclass
from typing import Literal

SnrReference = Literal["round", "slot", "transmit"]
"""The mean received power of the round, that of each slot, or the power that devices transmit.

To a receiver the last is like the first: one noise variance for the whole round.
"""


@dataclass(frozen=True)
class GainModel:
    """How the gains of devices that send are spread, behind power control and over the level that it aims at."""

    mean: float = 1.0
    """Zero where phases are random: signals of several devices then add up in power alone."""
    var_real: float = 0.0
    var_imag: float = 0.0
    power_var: float = 0.0
    """Relative variance of a device's mean power."""
    silence: bool = False
    """Whether devices are silent in some blocks, so that their number differs from block to block."""
    correlation: float = 0.0
    """Of a device's gains to neighbouring antennas; that of the next but one is its square."""

    @classmethod
    def unknown_phase(cls, power_var: float = 0.0, correlation: float = 0.0) -> "GainModel":
        """Return the model of gains whose phases nobody controls."""
        return cls(mean=0.0, var_real=0.5, var_imag=0.5, power_var=power_var, correlation=correlation)

    @property
    def exact(self) -> bool:
        """Whether all gains are one."""
        return (self.mean, self.var_real, self.var_imag) == (1.0, 0.0, 0.0)
