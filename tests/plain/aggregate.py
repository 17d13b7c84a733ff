"""Plain aggregation rules: write out every slot's messages as a list of vectors, then do what the definition says."""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def messages_of(counts_of_slot: Tensor, codewords: Tensor) -> list[Tensor]:
    """Return one vector for each device of a slot."""
    return [codewords[j] for j, count in enumerate(counts_of_slot.tolist()) for _ in range(int(count))]


def mean(counts: Tensor, codewords: Tensor) -> Tensor:
    """Average the messages of each slot."""
    return _slot_by_slot(counts, codewords, lambda messages: sum_of(messages) / len(messages))


def majority_vote(counts: Tensor, codewords: Tensor) -> Tensor:
    """Average the codewords with the largest count."""
    result = []
    for row in counts.tolist():
        winners = [codewords[j] for j, count in enumerate(row) if count == max(row) and count > 0]
        result.append(sum_of(winners) / len(winners) if winners else torch.zeros_like(codewords[0]))
    return torch.stack(result)


def trimmed_mean(counts: Tensor, codewords: Tensor, *, keep: float = 0.8) -> Tensor:
    """Walk down the groups of equally counted codewords until the retained mass is used up (Appendix C)."""
    result = []
    for row in counts.tolist():
        total = torch.zeros_like(codewords[0])
        retained = max(1, math.ceil(keep * sum(row) - 1e-9))
        left = retained
        for count in sorted({int(count) for count in row if count > 0}, reverse=True):
            group = [codewords[j] for j, other in enumerate(row) if other == count]
            taken = min(left, count * len(group))
            total = total + sum_of(group) / len(group) * taken
            left -= taken
        result.append(total / retained)
    return torch.stack(result)


def coordinate_median(counts: Tensor, codewords: Tensor) -> Tensor:
    """Sort each coordinate and take the middle."""

    def median(messages: list[Tensor]) -> Tensor:
        values = torch.stack(messages).sort(dim=0).values
        return (values[(len(messages) - 1) // 2] + values[len(messages) // 2]) / 2

    return _slot_by_slot(counts, codewords, median)


def coordinate_trimmed_mean(counts: Tensor, codewords: Tensor, *, keep: float = 0.8) -> Tensor:
    """Sort each coordinate, drop both ends, average the rest."""

    def trimmed(messages: list[Tensor]) -> Tensor:
        dropped = min(math.floor((1 - keep) / 2 * len(messages) + 1e-9), (len(messages) - 1) // 2)
        return torch.stack(messages).sort(dim=0).values[dropped : len(messages) - dropped].mean(dim=0)

    return _slot_by_slot(counts, codewords, trimmed)


def geometric_median(counts: Tensor, codewords: Tensor, *, iterations: int = 16) -> Tensor:
    """Iterate Weiszfeld's step over the list of messages, unless one codeword has more than half of them."""

    def median(messages: list[Tensor]) -> Tensor:
        z = sum_of(messages) / len(messages)
        nu = max(1e-6 * sum(float((m - z).norm()) for m in messages) / len(messages), 1e-100)
        for _ in range(iterations):
            weights = [1 / max(nu, float((m - z).norm())) for m in messages]
            z = sum_of([w * m for w, m in zip(weights, messages, strict=True)]) / sum(weights)
        return z

    result = _slot_by_slot(counts, codewords, median)
    for slot, row in enumerate(counts.tolist()):
        if 2 * max(row) > sum(row):
            result[slot] = codewords[row.index(max(row))]
    return result


def sign_vote(counts: Tensor, codewords: Tensor, *, scale: float | None = None) -> Tensor:
    """Add up the signs of the messages and take the sign, times the mean absolute entry."""

    def vote(messages: list[Tensor]) -> Tensor:
        size = sum(float(m.abs().mean()) for m in messages) / len(messages) if scale is None else scale
        return sum_of([m.sign() for m in messages]).sign() * size

    return _slot_by_slot(counts, codewords, vote)


def sum_of(vectors: list[Tensor]) -> Tensor:
    """Add vectors one after the other."""
    total = torch.zeros_like(vectors[0])
    for vector in vectors:
        total = total + vector
    return total


def own_of(rule: str, counts: Tensor, codewords: Tensor) -> dict[str, Tensor]:
    """Return fragments of a base station, for rules that compare with them: codewords, of which some are shorter."""
    fragments = codewords[torch.arange(len(counts)) * 3 % len(codewords)]
    own = {"length-limit": 0.8 * fragments, "rarity": fragments}
    return {"own": own[rule]} if rule in own else {}


def length_limit(counts: Tensor, codewords: Tensor, *, own: Tensor) -> Tensor:
    """Cut every message to the length of the slot's own fragment, and average."""
    result = []
    for row, limit in zip(counts, own.norm(dim=1), strict=True):
        messages = messages_of(row, codewords)
        cut = [m * min(1.0, float(limit / m.norm())) if m.any() else m for m in messages]
        result.append(sum_of(cut) / len(cut) if cut else torch.zeros_like(codewords[0]))
    return torch.stack(result)


def rarity(counts: Tensor, codewords: Tensor, *, own: Tensor) -> Tensor:
    """Search for the share and the choices of attackers with a loop over codewords."""
    number, totals = len(codewords), counts.sum(dim=0).tolist()
    if not sum(totals):
        return codewords.new_zeros(len(counts), codewords.shape[1])
    chosen = [0.5] * number
    for fragment in own:
        chosen[min(range(number), key=lambda j: float((fragment - codewords[j]).norm()))] += 1
    honest, seen = [c / sum(chosen) for c in chosen], [t / sum(totals) for t in totals]
    attack, share, trust = [1 / number] * number, 0.1, [1.0] * number
    for _ in range(50):
        trust = [(1 - share) * h / ((1 - share) * h + share * a) for h, a in zip(honest, attack, strict=True)]
        false = [f * (1 - t) for f, t in zip(seen, trust, strict=True)]
        attack, share = [each / max(sum(false), 1e-300) for each in false], min(sum(false), 0.5)
    result = []
    for row in counts.tolist():
        weights = [count * t for count, t in zip(row, trust, strict=True)]
        total = sum_of([w * q for w, q in zip(weights, codewords, strict=True)])
        result.append(total / sum(weights) if sum(weights) else total)
    return torch.stack(result)


def _slot_by_slot(counts: Tensor, codewords: Tensor, rule: Callable[[list[Tensor]], Tensor]) -> Tensor:
    result = []
    for row in counts:
        messages = messages_of(row, codewords)
        result.append(rule(messages) if messages else torch.zeros_like(codewords[0]))
    return torch.stack(result)
