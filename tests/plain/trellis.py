"""The nearest point of a trellis lattice, state after state: what `aircomp.decoders.trellis` must find."""

import itertools

import numpy as np


def outputs(symbols: list[int], taps: tuple[tuple[int, ...], ...], q: int) -> list[tuple[int, ...]]:
    """Return the outputs of every step for the symbols that go in, zeros before them."""
    memory = len(taps[0]) - 1
    padded = [0] * memory + symbols
    return [
        tuple(
            sum(g * u for g, u in zip(tap, reversed(padded[step : step + memory + 1]), strict=True)) % q for tap in taps
        )
        for step in range(len(symbols))
    ]


def left(value: float, residue: int, q: int) -> float:
    """Return what a value leaves beside the nearest number that is a residue modulo q."""
    apart = (value - residue) % q
    return apart - q if apart > q / 2 else apart


def remainders(values: np.ndarray, taps: tuple[tuple[int, ...], ...], q: int) -> np.ndarray:
    """Return what a sequence leaves beside the nearest point, by the shortest way through the trellis."""
    memory = len(taps[0]) - 1
    ways = {(0,) * memory: (0.0, [])}
    for pair in values.reshape(-1, len(taps)):
        reached: dict[tuple[int, ...], tuple[float, list[float]]] = {}
        for (state, (cost, rest)), symbol in itertools.product(ways.items(), range(q)):
            register = (symbol, *state)
            labels = [sum(g * u for g, u in zip(tap, register, strict=True)) % q for tap in taps]
            steps = [left(value, label, q) for value, label in zip(pair, labels, strict=True)]
            total = cost + sum(step * step for step in steps)
            if register[:-1] not in reached or total < reached[register[:-1]][0]:
                reached[register[:-1]] = total, rest + steps
        ways = reached
    return np.array(min(ways.values(), key=lambda way: way[0])[1])
