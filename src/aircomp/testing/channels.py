"""What holds of every channel."""

from collections.abc import Callable

import torch
from torch import Tensor

from aircomp.channel.base import Channel, Csi
from aircomp.channel.signal import Symbols
from aircomp.common.rng import fixed_generator, generator
from aircomp.testing.made import made

_DEVICES, _SLOTS, _USES = 5, 12, 16


def check_channel(make: Callable[[], Channel]) -> None:
    """Check the properties that every channel must have.

    Args:
        make: Builds the channel.

    Raises:
        AssertionError: With a sentence that says what the channel did.
    """
    channel = made(make, "sound", "carry")
    csi = _sounded(channel)
    _check_state(csi)
    _check_draws(channel, csi)
    _check_carried(channel, csi)


def _sounded(channel: Channel, num_uses: int = _SLOTS * _USES, seed: int = 0) -> Csi:
    return channel.sound(_DEVICES, num_uses, rng=generator(seed, "fading"))


def _check_state(csi: Csi) -> None:
    assert isinstance(csi, Csi), f"sound returned {type(csi).__name__}, expected a Csi"
    assert csi.at_devices.num_devices == _DEVICES, f"sound was asked for {_DEVICES} devices"
    for name, values in _values(csi).items():
        assert len(values) == _DEVICES, f"{name} has shape {tuple(values.shape)}, expected {_DEVICES} devices first"
        assert torch.isfinite(values).all(), f"{name} holds values that are not finite"


def _values(csi: Csi) -> dict[str, Tensor]:
    found = {"gains": None if csi.gains is None else csi.gains.values, "the devices' scale": csi.at_devices.scale}
    return {name: values for name, values in found.items() if values is not None}


def _check_draws(channel: Channel, csi: Csi) -> None:
    again, longer = _values(_sounded(channel)), _values(_sounded(channel, 3 * _SLOTS * _USES))
    for name, values in _values(csi).items():
        assert torch.equal(values, again[name]), f"equal seeds give other {name}"
        same = torch.equal(values, longer[name][:, : values.shape[1]])
        assert same, (
            f"the {name} of a longer round do not begin with those of a shorter one: schemes would not share them"
        )


def _check_carried(channel: Channel, csi: Csi) -> None:
    signal = Symbols(torch.randn(_DEVICES, _SLOTS, _USES, generator=fixed_generator("symbols")), power=1.0)

    def heard(sent: Symbols, seed: int = 0) -> Tensor:
        return channel.carry(sent, csi, rng=generator(seed, "noise"))

    received = heard(signal)
    shape = (1 if csi.gains is None or csi.beams is not None else csi.gains.values.shape[2], _SLOTS, _USES)
    assert received.shape == shape, (
        f"carry returned {tuple(received.shape)}, expected [antennas, slots, uses] = {shape}"
    )
    assert torch.isfinite(received).all(), "carry returned values that are not finite"
    assert torch.equal(received, heard(signal)), "equal seeds give other noise"
    silent = heard(Symbols(torch.zeros_like(signal.values), power=0.0))
    assert torch.isfinite(silent).all(), "a round in which nobody sends is not finite"
