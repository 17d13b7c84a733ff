r"""Gains of the standard channel models of 3GPP (TR 38.901), as the package Sionna draws them.

    devices on Sionna's batch axis ──► taps h_p at delays τ_p ──► H[b] = Σ_p h_p e^{−j2πb f τ_p} ──► gains of block b

The radio is OFDM. A coherence block lies on a subcarrier of its own, and the next one is a fixed step of frequency above it.
Codewords run along time on it, so a codeword sees one gain. Neighbouring blocks have similar gains where the delay spread is
small. Links are never normalised one by one: that would remove the fading.
"""

from importlib import import_module
from typing import Any

import torch
from jaxtyping import Complex
from torch import Tensor

from aircomp.common.rng import global_state
from aircomp.errors import ConfigError

CARRIER_HZ = 3.5e9
BATCH = 512
"""Devices drawn at a time: bounds memory."""


def draw_standard(
    model: str, num_devices: int, blocks: int, antennas: int, *, delay_ns: float, step_khz: float, seed: int
) -> Complex[Tensor, "devices blocks antennas"]:
    """Draw the gains of a round; those of more blocks begin with those of fewer.

    Args:
        model: Which one.
        num_devices: Devices, each with gains of its own.
        blocks: Coherence blocks.
        antennas: Of the base station.
        delay_ns: Delay spread.
        step_khz: From the subcarrier of a block to that of the next.
        seed: What the gains are drawn from.

    Raises:
        ConfigError: If Sionna is not installed.
    """
    try:
        phy, channel = (import_module(name) for name in ("sionna.phy", "sionna.phy.channel"))
    except ImportError:
        raise ConfigError(
            f"channel.model = {model!r} needs Sionna, which is not installed; run pip install 'aircomp[sionna]'"
        ) from None
    frequencies = torch.arange(blocks, dtype=torch.float64) * step_khz * 1e3
    found = []
    with global_state(seed, "standard channel"):  # Sionna seeds torch's own generator, too
        phy.config.seed = seed
        air = _model(model, delay_ns * 1e-9, antennas)
        for first in range(0, num_devices, BATCH):
            taps, delays = air(min(BATCH, num_devices - first), 1, 1.0)
            heard = channel.cir_to_ofdm_channel(
                frequencies, taps.to(torch.complex128), delays.double(), normalize=False
            )
            found.append(heard[:, 0, :, 0, 0, 0].transpose(1, 2))
    return torch.cat(found) if found else torch.zeros(0, blocks, antennas, dtype=torch.complex128)


def _model(model: str, delay: float, antennas: int) -> Any:  # Any: a class of Sionna's
    """Build a model for devices with one antenna that do not move."""
    tr38901 = import_module("sionna.phy.channel.tr38901")
    kind, letter = model.upper().split("-")
    if kind == "TDL":
        return tr38901.TDL(letter, delay, CARRIER_HZ, num_rx_ant=antennas, max_speed=0.0)
    device, base = (
        tr38901.PanelArray(
            num_rows_per_panel=1,
            num_cols_per_panel=number,
            polarization="single",
            polarization_type="V",
            antenna_pattern="omni",
            carrier_frequency=CARRIER_HZ,
        )
        for number in (1, antennas)
    )
    return tr38901.CDL(letter, delay, CARRIER_HZ, device, base, "uplink", max_speed=0.0)
