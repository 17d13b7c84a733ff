"""Federated digits over Rayleigh fading that nobody knows: the blind receiver beside perfect aggregation, seed by seed."""

import aircomp
from aircomp.studies.verdicts import interval

SEEDS, ROUNDS, SNR_DB, ANTENNAS = 10, 60, 0.0, 8


def accuracy(uplink: str, seed: int) -> float:
    """Train once; return the mean test accuracy of the last five rounds."""
    radio = {"channel": "fading", "channel.antennas": ANTENNAS, "snr_db": SNR_DB, "channel.snr_reference": "transmit"}
    given = {} if uplink == "perfect" else radio  # which no radio touches
    run = aircomp.simulate("digits", uplink=uplink, rounds=ROUNDS, seed=seed, engine="serial", **given)
    return run.row["test_accuracy_last5"]


if __name__ == "__main__":
    differences = []
    for seed in range(SEEDS):
        perfect, blind = accuracy("perfect", seed), accuracy("blind", seed)
        differences.append(100 * (blind - perfect))
        print(f"| {seed} | {perfect:.4f} | {blind:.4f} | {differences[-1]:+.2f} |", flush=True)
    low, high = interval(differences, 0.975)
    print(f"blind minus perfect: {sum(differences) / SEEDS:+.2f} points, 95 % interval {low:+.2f} to {high:+.2f}")
