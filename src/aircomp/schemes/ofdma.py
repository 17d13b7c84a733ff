r"""Devices with subcarriers of their own (OFDMA): as `tdma-vq`, but side by side in frequency.

    base station: quantisation codebook and a seed (announced); which device has which subcarriers (agreed, by their SNR)
    devices:      SNR of the own subcarriers ──► water-filling ──► bits ──► update, compressed to so many ──► own subcarriers
    base station: every device's compressed update

Blocks of the channel are frequencies here: with a standard model of several paths, block $f$ has the gain $H[f] = \sum_p
h_p e^{-j2\pi f \Delta \tau_p}$ (`channel.model`). Devices take turns in choosing the block in which they are loudest, and
divide the energy of the round over their own by water-filling (`encode/subcarriers.py`). So frequency-selective fading
helps: somebody is loud at every frequency. Over white noise all frequencies are alike, and as many bits arrive as in
turns.

A device sends all of the time. Its mean power is one in place of $K$ in turns, but the sum of its subcarriers has peaks. With
`peak` it lowers its power until no peak of the drawn symbols exceeds that many times the nominal power.
"""

import torch

from aircomp.channel.base import AtDevices
from aircomp.encode.subcarriers import Subcarriers, draw_crests, fill, share_slots
from aircomp.schemes.base import slot_snr
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import OfdmaSettings
from aircomp.schemes.tdma import Plan, Vq, carried_bits

SYMBOLS = 64
"""Symbols in time that peaks are taken of."""


@scheme(
    "ofdma-vq",
    sends="codeword indices, on subcarriers of its own",
    needs="any",
    source="this package, rates at capacity",
    ours=True,
)
class OfdmaVq(Vq):
    """Vector-quantised updates side by side in frequency.

    Args:
        settings: Its options.
        context: What the link is made for.
    """

    settings_class = OfdmaSettings
    settings: OfdmaSettings
    side_information = (
        "every device's SNR in every block, by which subcarriers are divided",
        "error-free bits at capacity less uplink.gap_db",
    )

    def _plan(self, num_devices: int, slots: int, csi: AtDevices) -> Plan:
        snr = slot_snr(csi, slots, self.uses, self.name).cpu().double().expand(num_devices, slots)
        owner = share_slots(snr)
        gap = 10 ** (self.settings.gap_db / 10)
        own = snr.nan_to_num(posinf=1e300) / gap * (owner == torch.arange(num_devices)[:, None])
        crests = draw_crests(owner, num_devices, self.settings.carriers, SYMBOLS)
        lowered = (self.settings.peak / crests.double()).clamp(max=1.0)
        energies = fill(own, float(slots)) * lowered[:, None]
        bits = carried_bits(energies * own * gap, csi, self.uses, self.settings.gap_db)
        return Plan(
            Subcarriers(energies.float(), self.uses, crests),
            bits,
            capped=bool((energies.sum(dim=1) < slots * (1 - 1e-9)).any()),
            agreed={"owner": owner.to(torch.int16)},
        )
