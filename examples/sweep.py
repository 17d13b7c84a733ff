"""Sweep the SNR and plot the test accuracy of three schemes at equal channel uses and energy, with two seeds."""

import statistics

import matplotlib.pyplot as plt

import aircomp

SNRS_DB, SEEDS, ROUNDS = [-10.0, 10.0], [0, 1], 10


def accuracies(**settings):
    """Train with every seed, and return the test accuracies."""
    return [aircomp.simulate("digits", rounds=ROUNDS, seed=seed, **settings).test_accuracy for seed in SEEDS]


for uplink in ("amp-da", "gamp", "refined-analog"):
    found = [accuracies(uplink=uplink, snr_db=snr_db, snr_reference="transmit") for snr_db in SNRS_DB]
    means, spreads = [statistics.mean(each) for each in found], [statistics.stdev(each) for each in found]
    print(
        f"{uplink:15}", *(f"{mean:.3f} ± {spread:.3f}" for mean, spread in zip(means, spreads, strict=True)), sep="   "
    )
    plt.errorbar(SNRS_DB, means, spreads, marker="o", capsize=3, label=uplink)
plt.axhline(statistics.mean(accuracies(uplink="ideal")), color="gray", linestyle="--", label="exact updates")
plt.xlabel("SNR (dB)")
plt.ylabel("test accuracy")
plt.legend()
plt.savefig("sweep.png")
