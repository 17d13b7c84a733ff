"""How well receivers that know nothing count the codewords of saved rounds: gains, noise and number of devices are unknown.

    aircomp collect digits --raw --rounds 24 --seed 60 --out runs/digits60
    python examples/measurements/saved_rounds.py runs/digits60

Rounds that the trained receiver learned from are left out.
"""

import statistics
import sys
from pathlib import Path

from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.common.rng import generator
from aircomp.decoders.settings import BlindNetSettings
from aircomp.layer.blind_net import BlindLayer
from aircomp.schemes.digital.drawn import FadedRound, hear_choices
from aircomp.train.fragments import FragmentRound, load_round, round_files
from aircomp.train.rounds import arrange

SNRS_DB, ANTENNAS, SEEDS, SLOTS = (0.0, 5.0, 10.0), 8, 2, 512
"""The slots lie evenly over a round, in two blocks; every seed has other gains."""
RECEIVERS = {
    "`blind`": ("blind", None),
    "`blind-net`, slot by slot": ("blind-net", BlindNetSettings(memory=False)),
    "`blind-net`": ("blind-net", None),
    "`semi-blind`": ("semi-blind", None),
}


def last_unseen(directory: Path) -> Path:
    """Return the last round that was not trained on."""
    trained = BlindLayer.load().training["rounds"]["train"]
    return [path for path in round_files(directory) if f"{path.resolve().parent.name}/{path.stem}" not in trained][-1]


def heard(name: str, saved: FragmentRound, snr_db: float, seed: int) -> FadedRound:
    """Send a round through the air, and count."""
    receiver, settings = RECEIVERS[name]
    chosen = saved.indices[:, :: max(saved.num_slots // SLOTS, 1)][:, :SLOTS]
    channel = ChannelSettings(kind="fading", snr_db=snr_db, snr_reference="transmit", antennas=ANTENNAS)
    return hear_choices(receiver, channel, PowerSettings(), chosen, saved.popularity, seed=seed, settings=settings)


if __name__ == "__main__":
    for directory in map(Path, sys.argv[1:]):
        path = last_unseen(directory)
        saved = arrange(load_round(path), "popularity", rng=generator(0, "codeword order"))
        for name in RECEIVERS:
            cells, wrong = [], []
            for snr_db in SNRS_DB:
                rounds = [heard(name, saved, snr_db, seed) for seed in range(SEEDS)]
                found = [each.accuracy for each in rounds]
                wrong += [abs(each.decoded.num_active_hat - saved.num_active) for each in rounds]
                cells.append(f"{statistics.fmean(found):.3f} ± {statistics.stdev(found):.3f}")
            row = [
                f"{directory.name}/{path.stem}",
                name,
                *cells,
                f"{statistics.fmean(wrong):.2f} of {saved.num_active}",
            ]
            print(f"| {' | '.join(row)} |", flush=True)
