"""Belief propagation over the integers modulo a prime, word by word, check by check, by sums over all values."""

import torch


def decode(channel, code, iterations):
    """One word: messages in plain loops; the convolution of a check as the sum that defines it."""
    p, checks = code.prime, code.symbols.tolist()
    factors = code.factors.tolist()
    edges = [(c, i) for c, row in enumerate(checks) for i in range(len(row))]
    at = {}
    for c, i in edges:
        at.setdefault(checks[c][i], []).append((c, i))
    to_check = {(c, i): channel[checks[c][i]].double() for c, i in edges}
    belief = channel.double()
    for _ in range(iterations):
        to_symbol = {}
        for c, i in edges:
            others = [j for j in range(len(checks[c])) if j != i]
            rest = torch.zeros(p, dtype=torch.float64)
            rest[0] = 1
            for j in others:
                moved, found = torch.zeros_like(rest), torch.zeros_like(rest)
                for value in range(p):
                    moved[factors[c][j] * value % p] = to_check[c, j][value]
                for a in range(p):
                    found += rest[a] * moved.roll(a)
                rest = found
            to_symbol[c, i] = torch.stack([rest[-factors[c][i] * value % p] for value in range(p)])
        belief = channel.double().clone()
        for c, i in edges:
            belief[checks[c][i]] *= to_symbol[c, i]
        belief = belief / belief.sum(dim=1, keepdim=True)
        for c, i in edges:
            own = channel[checks[c][i]].double()
            for d, j in at[checks[c][i]]:
                if d != c:
                    own = own * to_symbol[d, j]
            to_check[c, i] = own / own.sum()
    return belief
