"""Which receiver counts best behind fading: over SNR and antennas, by what devices and base station must know.

Every receiver hears drawn rounds through the same gains. The SNR is `transmit`, so that devices spend the same mean energy
whatever power control makes of it. The noise is estimated; so is the number of devices by receivers in phase.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aircomp.channel import ChannelSettings, PowerSettings
from aircomp.common.results import Row
from aircomp.measure.fields import label_of
from aircomp.report.faded import hear_round, hear_with_pilots
from aircomp.report.figures import panels
from aircomp.report.page import Figure
from aircomp.report.rows import SHARE, present, series_of, table_of
from aircomp.reproduce.jobs import Job
from aircomp.reproduce.parts import Found, Outcome
from aircomp.reproduce.scales import Scale
from aircomp.reproduce.summary import over_seeds
from aircomp.uplinks.composite import CompositePilot
from aircomp.uplinks.receiver_csi import OwnPilots
from aircomp.uplinks.receivers import COMPOSITE, PHASELESS, RECEIVER_CSI

ANTENNAS = (1, 4, 8, 64)
SLOTS = {1: 512, 4: 512, 8: 512, 64: 256}
"""Of a round, by antennas: many of them tell in fewer slots."""
SNR_DB = (0.0, 5.0, 10.0)
DEVICES, BLOCK_SLOTS = 10, 128
WAYS: dict[str, dict[str, Any]] = {
    "gain at devices, widened": {"uplink": "widened", "power": "inversion", "antennas": (1,)},
    "gain at devices, md-aircomp": {"uplink": "md-aircomp", "power": "inversion", "antennas": ANTENNAS},
    "phase at devices, widened": {"uplink": "widened", "power": "phase", "antennas": (1,)},
    "no gains, blind": {"uplink": "blind", "power": "none", "antennas": ANTENNAS},
    "no gains, semi-blind": {"uplink": "semi-blind", "power": "none", "antennas": (4, 8, 64)},
    "pilots, receiver-csi": {"uplink": RECEIVER_CSI, "power": "none", "antennas": (1, 4, 8)},
    "no gains, md-aircomp-plus": {"uplink": COMPOSITE, "power": "none", "antennas": (8, 64)},
}
"""What must be known and who hears: power control, and the numbers of antennas; widened hears the first one alone."""


PILOTS = {RECEIVER_CSI: OwnPilots, COMPOSITE: CompositePilot}
"""Of the links that have pilots in every block."""


def receivers_jobs(scale: Scale, seeds: Sequence[int]) -> list[tuple[Row, Job]]:
    """Return a round sent in every way, to every number of antennas, at every SNR."""
    return [
        (
            {"known": name, "antennas": antennas, "snr_db": snr_db},
            Job(
                "faded",
                {k: way[k] for k in ("uplink", "power")} | {"antennas": antennas, "snr_db": snr_db, "seed": seed},
            ),
        )
        for seed in seeds
        for name, way in WAYS.items()
        for antennas in way["antennas"]
        for snr_db in SNR_DB
    ]


def receivers(scale: Scale, found: Found) -> Outcome:
    """Show the count accuracy."""
    rows = over_seeds(found, ("known", "antennas", "snr_db"), ("count_accuracy",))
    table = table_of("Count accuracy", rows, ("known", "antennas", "snr_db", "count_accuracy", "seeds"), NOTE)
    return Outcome(rows, (table,), present([accuracies(rows)]))


def accuracies(rows: Sequence[Row]) -> Figure | None:
    """Draw the count accuracy over SNR, a panel for each number of antennas."""
    series = {
        f"{antennas} antenna{'s' if antennas > 1 else ''}": series_of(
            [row for row in rows if antennas == row["antennas"] or WAYS[row["known"]]["antennas"] == (1,)],
            ["known"],
            "snr_db",
            "count_accuracy",
        )
        for antennas in ANTENNAS
    }
    alt = "Count accuracy over SNR for 1, 4, 8 and 64 antennas, a line for each receiver."
    axes: Any = {"x": label_of("snr_db"), "y": label_of("count_accuracy"), "limits": SHARE}
    return panels(series, **axes, title="Count accuracy behind fading", alt=alt) if rows else None


NOTE = (
    "Ten devices, 128 codewords of 64 uses, Zipf popularity; Rayleigh fading, gains that stay for 128 slots, transmit SNR. "
    "What must be known: the gain or the phase of the first antenna at the devices, which undo it, or no gains. Devices that "
    "invert are silent in blocks where their gain is below a tenth of its mean power; counts are of those that send. "
    "Receivers that know no gains are told the number of devices, as a round of many blocks would tell it. The noise is "
    "estimated. With pilots, one slot in 128 carries them: the base station learns every gain, and is told who sends."
)


def faded_job(job: Job, work: Path) -> dict[str, Any]:
    """Hear a drawn round through fading; `params`: uplink, power control, antennas, SNR, seed, perhaps a number of slots."""
    given = job.params
    antennas, uplink = given["antennas"], given["uplink"]
    channel = ChannelSettings(
        kind="fading",
        snr_db=given["snr_db"],
        snr_reference="transmit",
        antennas=antennas,
        block_slots=BLOCK_SLOTS,
    )
    power, slots = PowerSettings(control=given["power"]), given.get("slots", SLOTS[antennas])
    drawn = {"num_active": DEVICES, "num_slots": slots, "seed": given["seed"]}
    if uplink in PILOTS:
        heard = hear_with_pilots(PILOTS[uplink], channel, power, **drawn)
    else:
        heard = hear_round(uplink, channel, power, **drawn, told=float(DEVICES) if uplink in PHASELESS else None)
    return {"rows": [{"count_accuracy": heard.accuracy}]}
