"""How fast is decoding beside another checkout of the package? A process for each, which take turns.

Both decode the same rounds, so that counts can be compared too. Time is the processor's, which other programs do not
lengthen much; with several threads it is that of the wall.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aircomp.common.results import Row

DECODERS = ("amp-da-net", "amp-da-net, authors", "gamp-net", "gamp", "amp-da")
SNRS_DB = (0.0, 5.0, 10.0)
CODEWORDS, USES, NUM_ACTIVE = 128, 64, 10


def bench_against(before: Path, slots: int, repeats: int, threads: int) -> list[Row]:
    """Return slots per second of every decoder, here and there, and how many slots have equal counts at three SNRs.

    Args:
        before: The other checkout's root.
        slots: Slots of a round.
        repeats: Turns of each process; the median counts.
        threads: Of each process.
    """
    roots = {"here": Path(__file__).parents[1], "before": before.resolve()}
    with tempfile.TemporaryDirectory() as scratch:
        runs = {name: _start(root, slots, threads, Path(scratch) / name) for name, root in roots.items()}
        rows = []
        for decoder in DECODERS:
            seconds: dict[str, list[float]] = {name: [] for name in runs}
            for turn in range(repeats + 1):
                for name, run in runs.items():
                    found = float(_ask(run, decoder, SNRS_DB[-1]))
                    seconds[name] += [found] if turn else []  # the first warms up
            equal = []
            for snr_db in SNRS_DB:
                for run in runs.values():
                    _ask(run, decoder, snr_db)
                counts = [np.fromfile(Path(scratch) / name, dtype=np.int8).reshape(slots, -1) for name in runs]
                equal.append(int((counts[0] == counts[1]).all(1).sum()))
            here, there = (slots / statistics.median(seconds[name]) for name in runs)
            rows.append(
                {
                    "contender": decoder,
                    "slots_per_second": here,
                    "slots_per_second_before": there,
                    "times_before": here / there,
                    "equal_slots": " ".join(map(str, equal)),
                }
            )
        for run in runs.values():
            run.communicate()
    return rows


def _start(root: Path, slots: int, threads: int, counts: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(root / "src"), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, str(slots), str(threads), str(counts)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _ask(run: subprocess.Popen[str], decoder: str, snr_db: float) -> str:
    assert run.stdin is not None
    assert run.stdout is not None
    run.stdin.write(f"{decoder}\t{snr_db}\n")
    run.stdin.flush()
    return run.stdout.readline()


def _answer(arguments: Sequence[str]) -> None:
    """Decode what is asked for, line by line; print the seconds and leave the counts in a file."""
    import torch

    from aircomp.channel.awgn import transmit
    from aircomp.common.rng import generator
    from aircomp.decoders.amp.amp_da import AmpDa
    from aircomp.decoders.amp.gamp import Gamp
    from aircomp.decoders.net.amp_da_net import AmpDaNet, AmpDaNetDecoder
    from aircomp.decoders.settings import AmpDaNetSettings
    from aircomp.encode.codebook import count, make_codebook
    from aircomp.layer.communication import CommunicationLayer

    slots, threads, path = int(arguments[0]), int(arguments[1]), arguments[2]
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    rng = generator(0, "against")
    popularity = 1 / torch.arange(1, CODEWORDS + 1).float()
    chosen = torch.multinomial(popularity, NUM_ACTIVE * slots, replacement=True, generator=rng)
    counts = count(chosen.view(NUM_ACTIVE, slots), CODEWORDS)
    paper, own = CommunicationLayer.load("paper"), CommunicationLayer.load()
    authors = AmpDaNet(AmpDaNetSettings(form="authors"))
    authors.load_state_dict(paper.net.state_dict(), strict=False)  # but for two steps, which begin as they are
    two_bases, bernoulli = (
        make_codebook(kind, CODEWORDS, USES, rng=generator(1, kind)) for kind in ("two-bases", "bernoulli")
    )
    decoders = {
        "amp-da-net": (paper.decoder(), paper.codebook),
        "amp-da-net, authors": (AmpDaNetDecoder(authors.requires_grad_(False), paper.codebook), paper.codebook),
        "gamp-net": (own.decoder(), own.codebook),
        "gamp": (Gamp(two_bases), two_bases),
        "amp-da": (AmpDa(bernoulli), bernoulli),
    }
    for line in sys.stdin:
        name, snr_db = line.split("\t")
        decoder, codebook = decoders[name]
        received = transmit(counts, codebook, snr_db=float(snr_db), rng=generator(2, "noise"))
        begun = clock()
        decoded = decoder.decode(received, popularity / popularity.sum())
        seconds = clock() - begun
        decoded.counts.clamp(max=127).to(torch.int8).numpy().tofile(path)
        sys.stdout.write(f"{seconds}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _answer(sys.argv[1:])
