r"""Cycle codes over the integers modulo a prime $p$: low-density parity checks with two checks a symbol (Gallager 1962).

A codeword $x \in \mathbb{Z}_p^n$ satisfies every check, $\sum_v h_{cv} x_v = 0 \bmod p$. Each symbol is in two checks and
each check has $d$ symbols: symbols are the edges of a regular graph, and checks its vertices. In large fields two checks a
symbol are enough (Hu, Eleftheriou and Arnold 2005). Sums of codewords modulo $p$ are codewords, so the air may add them up.

A code is rebuilt from its rate, its prime and a seed, the same in every process. Edges join vertices that are as far apart as
possible, which leaves no short cycles (`tools/find_codes.py` looks for the seeds).
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aircomp.common import rng as rngs

LENGTH = 360
"""Symbols of a codeword."""


@dataclass(frozen=True)
class Graph:
    """The checks of one rate."""

    degree: int
    """Symbols of a check."""
    seed: int

    @property
    def checks(self) -> int:
        """How many checks a code has, and so how many symbols are parity."""
        return 2 * LENGTH // self.degree

    @property
    def information(self) -> int:
        """Symbols of a codeword that are free."""
        return LENGTH - self.checks


GRAPHS = (Graph(3, 3), Graph(4, 1), Graph(6, 0), Graph(8, 0), Graph(12, 0))
"""By rising rate: 1/3, 1/2, 2/3, 3/4, 5/6."""


@dataclass(frozen=True)
class Code:
    """One code; its symbols are in the order in which they are sent, information first."""

    prime: int
    graph: Graph
    symbols: Int[Tensor, "checks degree"]
    """The symbols of each check."""
    factors: Int[Tensor, "checks degree"]
    """What each of them is multiplied by, $h_{cv}$, never zero."""
    parity: Float[Tensor, "information checks"]
    """What information symbols are multiplied by, to give the parity symbols modulo the prime."""

    def encode(self, information: Int[Tensor, "*batch information"]) -> Int[Tensor, "*batch symbols"]:
        """Return codewords: the information, then the parity."""
        # whole numbers below 2^53, so products of matrices are exact
        parity = (information.double() @ self.parity.double().to(information.device)) % self.prime
        return torch.cat([information, parity.to(information)], dim=-1)

    def holds(self, symbols: Int[Tensor, "blocks symbols"]) -> Bool[Tensor, " blocks"]:
        """Return which words satisfy every check."""
        where, factors = self.symbols.to(symbols.device), self.factors.to(symbols)
        return ((symbols[:, where] * factors).sum(dim=2) % self.prime == 0).all(dim=1)


def prime_above(number: int) -> int:
    """Return the least prime above a number.

    >>> prime_above(16), prime_above(30)
    (17, 31)
    """
    found = max(number + 1, 2)
    while any(found % divisor == 0 for divisor in range(2, int(found**0.5) + 1)):
        found += 1
    return found


def checks_of(graph: Graph) -> Int[Tensor, "checks degree"]:
    """Return the symbols of every check: edge after edge joins the vertex of least degree to the one farthest from it."""
    rng = rngs.fixed_generator("parity checks", graph.degree, graph.seed)
    while True:
        ends = _joined(graph, rng)
        if ends is not None:
            return torch.stack([(ends == vertex).any(dim=1).nonzero()[:, 0] for vertex in range(graph.checks)])


def _joined(graph: Graph, rng: torch.Generator) -> Int[Tensor, "symbols 2"] | None:
    """Return the vertices of every edge; None: the last ones found no place."""
    number = graph.checks
    joined, degree, ends = torch.zeros(number, number), torch.zeros(number), []
    for _ in range(LENGTH):
        order = torch.rand(number, generator=rng)  # below one: breaks ties of whole numbers
        first = int((degree + order).argmin())
        far = _distances(joined, first)
        far[(degree >= graph.degree) | (far < 2)] = -1
        second = int((far * number - degree + order).argmax())
        if far[second] < 0:
            return None
        joined[first, second] = joined[second, first] = 1
        degree[first] += 1
        degree[second] += 1
        ends.append((first, second))
    return torch.tensor(ends)


def _distances(joined: Float[Tensor, "vertices vertices"], start: int) -> Float[Tensor, " vertices"]:
    """Return how many edges are between a vertex and each other one; as many as there are vertices where none lead there."""
    found = torch.full((len(joined),), float(len(joined)))
    seen = torch.zeros(len(joined), dtype=torch.bool)
    seen[start], step = True, 0
    edge = seen.clone()
    while edge.any():
        found[edge] = step
        edge = (joined[edge].sum(dim=0) > 0) & ~seen
        seen, step = seen | edge, step + 1
    return found


def girth(checks: Int[Tensor, "checks degree"]) -> int:
    """Return the length of the shortest cycle of checks; a message comes back to its sender after as many steps."""
    number = len(checks)
    has = torch.zeros(number, LENGTH).scatter_(1, checks, 1.0)
    ends = has.T.nonzero()[:, 1].reshape(LENGTH, 2)
    joined = (has @ has.T).fill_diagonal_(0)
    shortest = number + 1
    for first, second in ends.tolist():
        without = joined.clone()
        without[first, second] = without[second, first] = 0
        shortest = min(shortest, int(_distances(without, first)[second]) + 1)
    return shortest


@lru_cache(maxsize=32)
def make_code(prime: int, graph: Graph) -> Code:
    """Return the code of a graph over a prime; factors are drawn until the checks are independent.

    Args:
        prime: How many values a symbol has.
        graph: One of `GRAPHS`.
    """
    checks = checks_of(graph)
    rng = rngs.fixed_generator("factors of parity checks", prime, graph.degree, graph.seed)
    while True:
        factors = torch.randint(1, prime, checks.shape, generator=rng)
        dense = torch.zeros(len(checks), LENGTH, dtype=torch.int64)
        dense[torch.arange(len(checks))[:, None], checks] = factors
        reduced, pivots = _reduced(dense, prime)
        if len(pivots) == len(checks):
            break
    free = torch.ones(LENGTH, dtype=torch.bool)
    free[pivots] = False
    order = torch.cat([free.nonzero()[:, 0], pivots])
    place = torch.empty_like(order)
    place[order] = torch.arange(LENGTH)
    parity = (-reduced[:, free]).remainder(prime).T.float()
    return Code(prime, graph, place[checks], factors, parity)


def _reduced(
    dense: Int[Tensor, "checks symbols"], prime: int
) -> tuple[Int[Tensor, "rank symbols"], Int[Tensor, " rank"]]:
    """Return the reduced echelon form modulo a prime, and the columns of its pivots."""
    rows, pivots, rank = dense.clone(), [], 0
    for column in reversed(range(rows.shape[1])):
        below = rows[rank:, column].nonzero()[:, 0]
        if not len(below):
            continue
        chosen = rank + int(below[0])
        rows[[rank, chosen]] = rows[[chosen, rank]]
        rows[rank] = rows[rank] * pow(int(rows[rank, column]), -1, prime) % prime
        others = rows[:, column].clone()
        others[rank] = 0
        rows = (rows - others[:, None] * rows[rank]) % prime
        pivots.append(column)
        rank += 1
        if rank == len(rows):
            break
    return rows[:rank], torch.tensor(pivots, dtype=torch.int64)
