"""What training brings a receiver that knows no gains: count accuracy of `blind` and `blind-net` behind several radios."""

import statistics

from aircomp.channel import ChannelSettings, PowerSettings
from aircomp.report.faded import hear_round

DEVICES, SLOTS, SEEDS, SNRS_DB = 10, 64, 8, (0.0, 5.0, 10.0)
RADIOS = {
    "1 antenna": {"antennas": 1},
    "4 antennas": {"antennas": 4},
    "8 antennas": {"antennas": 8},
    "64 antennas": {"antennas": 64},
    "8 antennas, power error of 3 dB": {"antennas": 8, "errors": {"power_db": 3.0}},
    "64 antennas, power error of 3 dB": {"antennas": 64, "errors": {"power_db": 3.0}},
    "8 antennas, correlation of 0.9": {"antennas": 8, "correlation": 0.9},
}
"""Their gains are new in every slot."""


def accuracies(receiver: str, radio: dict, snr_db: float) -> list[float]:
    """Count the codewords of a round for every seed; the number of devices is told, the noise is not."""
    channel = ChannelSettings(kind="fading", snr_db=snr_db, snr_reference="transmit", block_slots=1, **radio)
    drawn = {"num_active": DEVICES, "num_slots": SLOTS, "told": float(DEVICES)}
    return [hear_round(receiver, channel, PowerSettings(), **drawn, seed=seed).accuracy for seed in range(SEEDS)]


if __name__ == "__main__":
    for name, radio in RADIOS.items():
        for receiver in ("blind", "blind-net"):
            found = [accuracies(receiver, radio, snr_db) for snr_db in SNRS_DB]
            cells = [f"{statistics.fmean(values):.3f} ± {statistics.stdev(values):.3f}" for values in found]
            print(f"| {name} | `{receiver}` | {' | '.join(cells)} |", flush=True)
