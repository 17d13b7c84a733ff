"""Train over gains from a file: here those of a street with two rows of scatterers, in the place of a ray tracer's."""

import numpy as np
import torch

import aircomp

USERS, BLOCKS, ANTENNAS, PATHS = 200, 16, 4, 12
rng = torch.Generator().manual_seed(0)


def uniform(*shape):
    return torch.rand(*shape, generator=rng, dtype=torch.float64)


# every path of every user: an angle at the antennas, a delay, and a strength that falls with the distance
sine, delay, turn = 2 * uniform(USERS, PATHS) - 1, uniform(USERS, PATHS), uniform(USERS, PATHS)
strength = (0.2 + 0.8 * uniform(USERS, 1)) ** -1.5 * uniform(USERS, PATHS)
steps, blocks = torch.arange(ANTENNAS), torch.arange(BLOCKS)
phase = 0.5 * sine[:, None, None] * steps[:, None] - delay[:, None, None] * blocks[:, None, None] + turn[:, None, None]
gains = (strength[:, None, None] * torch.exp(2j * np.pi * phase)).sum(dim=-1)  # [users, blocks, antennas]
np.save("gains.npy", gains.numpy())

for uplink, control in (("blind", "statistical"), ("widened", "inversion")):
    run = aircomp.simulate(
        "digits",
        uplink=uplink,
        snr_db=10.0,
        rounds=3,
        **{"channel.kind": "recorded", "channel.gains": "gains.npy", "channel.antennas": ANTENNAS},
        **{"channel.block_slots": 64, "power.control": control},
    )
    print(
        f"{uplink:8} {control:12} count accuracy {run.row['count_accuracy']:.2f}, test accuracy {run.test_accuracy:.2f}"
    )
