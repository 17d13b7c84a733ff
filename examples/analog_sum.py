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

    def broadcast(self, base_update, memory, *, rng, num_uses=None):
        num_uses = num_uses or (-(-base_update.numel() // USES) + 1) * USES  # the budget, where there is one
        scale = base_update.square().mean().sqrt().clamp(min=1e-12)
        return Broadcast(base_update.numel(), num_uses, {"scale": scale}), None

    def encode(self, messages, broadcast, csi, *, rng):
        room, times = sizes(broadcast)
        values = (messages / broadcast.values["scale"].to(messages)).repeat_interleave(times, dim=1)[:, :room]
        values = F.pad(values, (0, room - values.shape[1]))
        symbols = torch.cat([values, torch.ones(len(values), USES).to(values)], dim=1)
        full_power = (symbols.shape[1] / symbols.square().sum(dim=1, keepdim=True)).sqrt() / USES**0.5
        signal = Symbols((full_power * symbols).unflatten(1, (-1, USES)), power=1 / USES)
        said = where_speaking(messages.repeat_interleave(times, dim=1), csi, USES)[:, ::times]
        return Sent(signal, said * (torch.arange(said.shape[1]) * times < room), pilot_uses=USES)

    def decode(self, received, broadcast, private, csi):
        room, times = sizes(broadcast)
        heard = received[0].real.flatten()
        amplitudes = heard[-USES:].mean().clamp(min=1e-6)
        numbers = F.pad(heard[:room], (0, broadcast.num_params * times))[: broadcast.num_params * times]
        mean = numbers.unflatten(0, (-1, times)).mean(dim=1) / amplitudes * broadcast.values["scale"]
        return Mean(mean=mean, num_active_hat=float(amplitudes * USES**0.5)), {}


def sizes(broadcast):
    """Return the uses for numbers, and how often each number is sent; what finds no room is left to error feedback."""
    room = broadcast.num_uses - USES
    return room, max(room // broadcast.num_params, 1)


if __name__ == "__main__":
    run = aircomp.simulate("digits", uplink=AnalogSum(), rounds=20, **{"channel.snr_db": 10.0}, out="runs/analog-sum")
    print(round_cost(AnalogSum(), run.row["num_parameters"], 10, Radio()))
    print(f"test accuracy {run.test_accuracy:.3f}; aircomp report runs/analog-sum shows more")
