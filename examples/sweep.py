"""Sweep the SNR and plot the test accuracy of two schemes."""

import matplotlib.pyplot as plt

import aircomp

SNRS_DB, ROUNDS = [-5.0, 0.0, 5.0, 10.0], 10

for uplink in ("amp-da", "gamp"):
    runs = [aircomp.simulate("digits", uplink=uplink, snr_db=snr_db, rounds=ROUNDS) for snr_db in SNRS_DB]
    print(*runs, sep="\n")
    plt.plot(SNRS_DB, [run.test_accuracy for run in runs], marker="o", label=uplink)
best = aircomp.simulate("digits", uplink="perfect", rounds=ROUNDS)
plt.axhline(best.test_accuracy, color="gray", linestyle="--", label="no radio errors")
plt.xlabel("SNR (dB)")
plt.ylabel("test accuracy")
plt.legend()
plt.savefig("sweep.png")
