"""A scheme of your own: every device sends its update as it is, and the air adds them up (uncoded analog, with pilots).

    python examples/analog_sum.py

runs it on federated digits and prints what a round takes; nothing in the package knows of it. The idea is that of broadband
analog aggregation; the pilots, which tell the base station the sum of all amplitudes, are A-DSGD's.
"""

import torch
import torch.nn.functional as F

import aircomp
from aircomp.channel.signal import Symbols
from aircomp.schemes.base import Broadcast, Scheme, Sent, where_speaking
from aircomp.schemes.cost import Radio, round_cost
from aircomp.schemes.outputs import Mean

USES = 64  # of a slot; the last slot holds the pilots


class AnalogSum(Scheme):
    """Uncoded analog sum."""

    name, offers = "analog-sum", Mean

    def broadcast(self, base_update, memory, *, rng):
        slots = -(-base_update.numel() // USES) + 1
        scale = base_update.square().mean().sqrt().clamp(min=1e-12)
        return Broadcast(base_update.numel(), slots * USES, {"scale": scale}), None

    def encode(self, messages, broadcast, csi, *, rng):
        values = messages / broadcast.values["scale"].to(messages)
        values = F.pad(values, (0, broadcast.num_uses - USES - values.shape[1]))
        symbols = torch.cat([values, torch.ones(len(values), USES).to(values)], dim=1)
        full_power = (symbols.shape[1] / symbols.square().sum(dim=1, keepdim=True)).sqrt() / USES**0.5
        signal = Symbols((full_power * symbols).unflatten(1, (-1, USES)), power=1 / USES)
        return Sent(signal, where_speaking(messages, csi, USES), pilot_uses=USES)

    def decode(self, received, broadcast, private, csi):
        heard = received[0].real.flatten()
        amplitudes = heard[-USES:].mean().clamp(min=1e-6)
        mean = heard[: broadcast.num_params] / amplitudes * broadcast.values["scale"]
        return Mean(mean=mean, num_active_hat=float(amplitudes * USES**0.5)), {}


if __name__ == "__main__":
    run = aircomp.simulate("digits", uplink=AnalogSum(), rounds=20, **{"channel.snr_db": 10.0}, out="runs/analog-sum")
    print(round_cost(AnalogSum(), run.row["num_parameters"], 10, Radio()))
    print(f"test accuracy {run.test_accuracy:.3f}; aircomp report runs/analog-sum shows more")
