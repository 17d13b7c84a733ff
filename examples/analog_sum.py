"""A scheme of your own: every device sends its update as it is, and the air adds them up (uncoded analog, with pilots).

    python examples/analog_sum.py

runs it on federated digits and prints what a round takes; nothing in the package knows of it. The idea is that of broadband
analog aggregation; the pilots, which tell the base station the sum of all amplitudes, are A-DSGD's.
"""

import torch
import torch.nn.functional as F

import aircomp
from aircomp.channel.signal import Symbols
from aircomp.uplinks.base import Announced, Scheme, Sent, where_speaking
from aircomp.uplinks.cost import Radio, round_cost
from aircomp.uplinks.outputs import Mean

USES = 64  # of a slot; the last slot holds the pilots


class AnalogSum(Scheme):
    """Uncoded analog sum."""

    name, offers = "analog-sum", Mean

    def broadcast(self, base_update, memory, *, rng):
        slots = -(-base_update.numel() // USES) + 1
        return Announced(
            base_update.numel(), slots * USES, {"scale": base_update.square().mean().sqrt().clamp(min=1e-12)}
        )

    def encode(self, messages, announced, csi, *, rng):
        values = messages / announced.downlink["scale"].to(messages)
        values = F.pad(values, (0, announced.num_uses - USES - values.shape[1]))
        symbols = torch.cat([values, torch.ones(len(values), USES).to(values)], dim=1)
        full_power = (symbols.shape[1] / symbols.square().sum(dim=1, keepdim=True)).sqrt() / USES**0.5
        signal = Symbols((full_power * symbols).unflatten(1, (-1, USES)), power=1 / USES)
        return Sent(signal, where_speaking(messages, csi, USES), pilot_uses=USES)

    def decode(self, received, announced, csi):
        heard = received[0].real.flatten()
        amplitudes = heard[-USES:].mean().clamp(min=1e-6)
        mean = heard[: announced.num_params] / amplitudes * announced.downlink["scale"]
        return Mean(mean=mean, num_active_hat=float(amplitudes * USES**0.5)), {}


if __name__ == "__main__":
    run = aircomp.simulate("digits", uplink=AnalogSum(), rounds=20, **{"channel.snr_db": 10.0}, out="runs/analog-sum")
    print(round_cost(AnalogSum(), run.row["num_parameters"], 10, Radio()))
    print(f"test accuracy {run.test_accuracy:.3f}; aircomp report runs/analog-sum shows more")
