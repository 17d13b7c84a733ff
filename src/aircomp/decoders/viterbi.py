"""The most probable bits behind noisy symbols of a convolutional code (Viterbi 1967), for many blocks at once.

A state holds the last bits that the encoder saw, the newest as the lowest bit. Each step adds one bit. Two ways lead into
every state, and the better one survives. Blocks begin and end in state zero.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def viterbi(
    heard: Float[Tensor, "blocks steps outputs"], taps: Bool[Tensor, "outputs register"]
) -> Bool[Tensor, "blocks steps"]:
    """Return the bits of every block, those that close it included.

    Args:
        heard: Symbols with noise, ±1 each times any positive scale.
        taps: Which bits each output adds up, the newest first.
    """
    memory = taps.shape[1] - 1
    states = torch.arange(2**memory, device=heard.device)
    # into a state lead two others, which differ in the bit that falls out; the newest bit of the state is what was sent
    before = torch.stack([(states >> 1) | (oldest << (memory - 1)) for oldest in (0, 1)])
    register = torch.stack([(states | (oldest << memory)) for oldest in (0, 1)])
    bits = torch.stack([register >> i & 1 for i in range(memory + 1)], dim=-1)
    symbols = 1 - 2 * (bits.float() @ taps.T.float().to(heard.device)).remainder(2)  # [ways, states, outputs]
    score = torch.full((len(heard), len(states)), -torch.inf).to(heard)
    score[:, 0] = 0
    chosen = []
    for step in heard.unbind(1):
        gain = torch.einsum("bo,wso->bws", step, symbols.to(heard))
        best = (score[:, before] + gain).max(dim=1)
        score = best.values
        chosen.append(best.indices.bool())
    return _traced(chosen, memory)


def _traced(chosen: list[Bool[Tensor, "blocks states"]], memory: int) -> Bool[Tensor, "blocks steps"]:
    """Go back from state zero at the end along the ways that survived."""
    blocks = len(chosen[0])
    state = torch.zeros(blocks, dtype=torch.int64, device=chosen[0].device)
    found = []
    for ways in reversed(chosen):
        found.append((state & 1).bool())
        oldest = ways.gather(1, state[:, None])[:, 0].long()
        state = (state >> 1) | (oldest << (memory - 1))
    return torch.stack(found[::-1], dim=1)
