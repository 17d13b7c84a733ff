"""What training brings a receiver that knows no gains: count accuracy of `blind-net` beside those that are not trained."""

import statistics

from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.schemes.digital.drawn import hear_round

DEVICES, SEEDS, SNRS_DB = 10, 6, (0.0, 5.0, 10.0)
NEW_GAINS = {
    "1 antenna": {"antennas": 1},
    "4 antennas": {"antennas": 4},
    "8 antennas": {"antennas": 8},
    "64 antennas": {"antennas": 64},
    "8 antennas, power error of 3 dB": {"antennas": 8, "errors": {"power_db": 3.0}},
    "64 antennas, power error of 3 dB": {"antennas": 64, "errors": {"power_db": 3.0}},
    "8 antennas, correlation of 0.9": {"antennas": 8, "correlation": 0.9},
}
"""Radios whose gains are new in every slot."""
GAINS_THAT_STAY = {f"{antennas} antenna{'s' * (antennas > 1)}": {"antennas": antennas} for antennas in (4, 8, 1)}
"""Radios whose gains stay for a round."""


def accuracies(receiver: str, radio: dict, snr_db: float, slots: int, block_slots: int) -> list[float]:
    """Count the codewords of a round for every seed; the number of devices is told, the noise is not."""
    channel = ChannelSettings(kind="fading", snr_db=snr_db, snr_reference="transmit", block_slots=block_slots, **radio)
    drawn = {"num_active": DEVICES, "num_slots": slots, "told": float(DEVICES)}
    return [hear_round(receiver, channel, PowerSettings(), **drawn, seed=seed).accuracy for seed in range(SEEDS)]


def show(radios: dict[str, dict], receivers: tuple[str, ...], slots: int, block_slots: int) -> None:
    """Print mean ± standard deviation over seeds, and the worst seed."""
    for name, radio in radios.items():
        for receiver in receivers:
            found = [accuracies(receiver, radio, snr_db, slots, block_slots) for snr_db in SNRS_DB]
            cells = [f"{statistics.fmean(v):.3f} ± {statistics.stdev(v):.3f}, worst {min(v):.3f}" for v in found]
            print(f"| {name} | `{receiver}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    show(NEW_GAINS, ("blind", "blind-net"), slots=64, block_slots=1)
    show(GAINS_THAT_STAY, ("blind", "blind-net", "semi-blind"), slots=128, block_slots=128)
