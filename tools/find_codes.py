r"""Measure codes over a prime field: short cycles of their graphs, and lost words over the SNR.

    python tools/find_codes.py girth --seeds 20          # the seeds of `aircomp.encode.ldpc.GRAPHS`
    python tools/find_codes.py lost --prime 17 53 --words 256

`lost` sends equally likely symbols of ten devices, as many dB above the computation rate ½ log₂(1/K + SNR) as it prints
(Nazer and Gastpar 2011). `spare` is how many checks the code has beyond the symbols that noise leaves open.
"""

import argparse
import math
from dataclasses import replace

import torch

from aircomp.common.rng import fixed_generator
from aircomp.decoders import ldpc
from aircomp.decoders.digit_sums import sum_prior
from aircomp.decoders.lattice_sums import residues
from aircomp.encode.ldpc import GRAPHS, LENGTH, Graph, checks_of, girth, make_code

DEVICES = 10
APART = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0)


def print_girths(seeds: int) -> None:
    """Print for every rate the seeds whose shortest cycle is longest."""
    for graph in GRAPHS:
        found = {seed: girth(checks_of(replace(graph, seed=seed))) for seed in range(seeds)}
        best = [seed for seed, length in found.items() if length == max(found.values())]
        print(f"degree {graph.degree}: girth {max(found.values())} with seeds {best}")


def lost(graph: Graph, prime: int, apart_db: float, words: int) -> tuple[float, float, float]:
    """Return the shares of lost words and wrong symbols, and the spare checks, so far above the computation rate."""
    code, rng = make_code(prime, graph), fixed_generator("find codes", prime, graph.degree)
    bits = graph.information / LENGTH * math.log2(prime)
    snr = (2 ** (2 * bits) - 1 / DEVICES) * 10 ** (apart_db / 10)
    noise_var = (prime**2 - 1) / 12 / snr
    total = code.encode(torch.randint(prime, (DEVICES, words, graph.information), generator=rng)).sum(dim=0)
    heard = total.float() + noise_var**0.5 * torch.randn(total.shape, generator=rng)
    channel = residues(heard.flatten(), noise_var, sum_prior(torch.ones(prime), DEVICES), prime)
    left = float(torch.special.entr(channel).sum()) / math.log(prime) / words
    found, _, _ = ldpc.decode(channel.unflatten(0, heard.shape), code)
    wrong = found != total % prime
    return float(wrong.any(dim=1).double().mean()), float(wrong.double().mean()), graph.checks - left


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("girth").add_argument("--seeds", type=int, default=20)
    measured = commands.add_parser("lost")
    measured.add_argument("--prime", type=int, nargs="+", default=[17, 53])
    measured.add_argument("--words", type=int, default=128)
    chosen = parser.parse_args()
    if chosen.command == "girth":
        print_girths(chosen.seeds)
        return
    print(
        "| p | rate | dB above the computation rate | lost words | wrong symbols | spare checks |\n|---|---|---|---|---|---|"
    )
    for prime in chosen.prime:
        for graph in GRAPHS:
            for apart_db in APART:
                words, symbols, spare = lost(graph, prime, apart_db, chosen.words)
                rate = f"{graph.information}/{LENGTH}"
                print(f"| {prime} | {rate} | {apart_db} | {words:.3f} | {symbols:.5f} | {spare:.0f} |", flush=True)


if __name__ == "__main__":
    main()
