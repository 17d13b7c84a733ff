r"""Sketches: before a round each device sends random sums of its update in its own turn, and the base station admits some.

    base station: seed and unit of length (announced)
    devices:      message ──► S random sums ──► turns, one after the other, and a last one in which nobody sends
    base station: length of each, and cosine with its own update ──► who is admitted (announced); the others stay silent

What adds up in the air cannot be told apart. A sketch has a turn of its own, so it can: that takes identities. All parameters
go into $S$ sums with random signs, which keeps lengths and angles: the cosine of two sketches has the variance $1/S$ around
that of the updates, and $(1 + 1/\gamma)/S$ behind noise, where $\gamma$ is the signal-to-noise ratio of the turn.

The energy of a turn follows the length $\ell$ of the message, $\min(1, \ell/3\ell_0)$ of all that a device may spend, where
$\ell_0$ is announced. So the base station hears how long a message is, whatever it says.

To leave an honest device out costs about as much as noise of its length, so only what is certain is refused:

- a message more than twice as long as the median one;
- a cosine $c$ that is $e^2$ times likelier of the negative of an honest update than of one. With the median cosine $\bar c$
  and the variance $v$ that is $c < -v/\bar c$. Where honest cosines are small nothing is certain, and nobody is refused.

A device that lies in its sketch passes. What it then sends is held to the energy of one device by its amplifier alone.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor

from aircomp.channel.base import Attack, Channel, Csi
from aircomp.channel.signal import Signal, Symbols
from aircomp.common import rng as rngs
from aircomp.common.boundary import ask
from aircomp.errors import ConfigError
from aircomp.schemes.attack import jammed
from aircomp.schemes.base import Broadcast, Memory, in_phase, new_seed, remembered
from aircomp.schemes.meter import Admission, Air, spent_by
from aircomp.schemes.wire import to_wire

IDENTITIES = ("which device has which turn, in which it sends its sketch",)
"""Side information of a round with sketches."""
LENGTH = "sketched_length"
"""What a link with sketches remembers: the median length of messages."""
MOST = 3.0
"""Messages longer than so many units sound alike."""
LONG = 2.0
"""A message so many times as long as the median one is refused; honest ones on digits are .6 to 1.5 times as long."""
CERTAIN = 2.0
"""Logarithm of how much likelier a flip has to be than an honest update."""
FEWEST = 8
"""The least sums of a sketch: with fewer a cosine is off by more than a third."""


def admit(
    channel: Channel,
    base_update: Float[Tensor, " params"],
    messages: Float[Tensor, "devices params"],
    memory: Memory,
    uses: int,
    attack: Attack | None,
    rng: Callable[[str], torch.Generator],
    uses_radio: bool = True,
) -> Admission:
    """Let devices send sketches in turns, and the base station say who is admitted.

    Args:
        channel: What sketches go through; its gains are those of the round.
        base_update: The base station's own update.
        messages: What the devices want to say.
        memory: What the link remembers.
        uses: Channel uses of all turns, at most.
        attack: Who attacks, and how.
        rng: Returns the generator of a purpose.
        uses_radio: False for bounds that are told the truth.
    """
    told = announce(base_update, memory, len(messages), uses, rng("sketch"))
    csi = ask(channel.sound, len(messages), told.num_uses, rng=rng("fading"))
    signal: Signal = send(messages, told.at_devices(messages.device))
    if attack is not None and attack.jams:
        signal = jammed(signal, told.num_uses, attack, rng=rng("jammed sketches"))
    heard = signal.superpose(None)
    if uses_radio:
        heard = ask(channel.carry, signal, csi, rng=rng("noise of sketches"))
    found = judge(heard, told, base_update)
    spent = spent_by(signal, told, csi)
    wires = (told.wire, to_wire({"admitted": found.admitted}, "the base station admits"))
    air = Air(
        num_slots=len(messages) + 1,
        channel_uses=told.num_uses,
        pilot_uses=0,
        energy=spent,
        nominal_energy=float(spent.mean()),
        peak_power=float(signal.slot_peak().max()),
        downlink_bits=8 * sum(map(len, wires)),
        agreed_bits=0,
        side_information=IDENTITIES,
    )
    return replace(found, air=air)


def without_refused(csi: Csi, admitted: Bool[Tensor, " devices"], num_uses: int) -> Csi:
    """Return the channel state for devices of which some stay silent, and take no part in what the others agree on."""
    if bool(admitted.all()):
        return csi
    known = csi.at_devices
    scale = torch.ones(len(admitted), 1) if known.scale is None else known.scale
    silent = ~admitted[:, None]
    told = replace(
        known,
        scale=scale.masked_fill(silent, 0),
        block_uses=known.block_uses or num_uses,
        snr=None if known.snr is None else known.snr.masked_fill(silent, 0),
        over_noise=None if known.over_noise is None else known.over_noise.masked_fill(silent[:, :, None], 0),
        reports=admitted.float() if known.reports is None else known.reports * admitted,
    )
    return replace(csi, at_devices=told)


def announce(
    base_update: Float[Tensor, " params"], memory: Memory, devices: int, uses: int, rng: torch.Generator
) -> Broadcast:
    """Announce the seed of the sums, the unit of length, and how long turns are.

    Args:
        base_update: The base station's own update.
        memory: What the link remembers.
        devices: How many turns there are.
        uses: Channel uses of all turns, at most.
        rng: Where every random number of this call comes from.

    Raises:
        ConfigError: If turns are too short.
    """
    sums = uses // (devices + 1)
    if sums < FEWEST:
        raise ConfigError(
            f"sketch leaves {uses} channel uses for {devices} devices, {sums} in a turn; expected at least {FEWEST}"
        )
    unit = remembered(memory, LENGTH) or float(base_update.norm()) or 1.0
    values = {"seed": new_seed(rng), "unit": torch.tensor(unit, dtype=torch.float64), "sums": torch.tensor(sums)}
    return Broadcast(base_update.numel(), sums * (devices + 1), values)


def sums_of(messages: Float[Tensor, "devices params"], announced: Broadcast) -> Float[Tensor, "devices sums"]:
    """Return the random sums of messages: every parameter with a random sign in one of them."""
    drawn, number = rngs.generator(int(announced.values["seed"]), "sketch"), int(announced.values["sums"])
    size = messages.shape[1]
    places, signs = torch.randint(number, (size,), generator=drawn), torch.randint(2, (size,), generator=drawn) * 2 - 1
    found = messages.new_zeros(len(messages), number)
    return found.index_add_(1, places.to(messages.device), messages * signs.to(messages))


def send(messages: Float[Tensor, "devices params"], announced: Broadcast) -> Symbols:
    """Let every device send its sums in its turn; the last turn is nobody's. Power one is what devices have in the round."""
    sums, unit = sums_of(messages, announced), float(announced.values["unit"])
    each = (messages.norm(dim=1) / (MOST * unit)).clamp(max=1.0) * announced.num_uses
    turns = torch.zeros(len(messages), len(messages) + 1, sums.shape[1], dtype=sums.dtype, device=sums.device)
    own = torch.arange(len(messages))
    turns[own, own] = torch.nn.functional.normalize(sums, dim=1) * each.sqrt()[:, None]
    return Symbols(turns, power=1.0)


def judge(
    received: Inexact[Tensor, "antennas turns sums"], announced: Broadcast, base_update: Float[Tensor, " params"]
) -> Admission:
    """Tell the devices whose sketches look honest."""
    heard = in_phase(received).double()
    turns, noise_var = heard[:-1], float(heard[-1].square().mean())
    number, own = heard.shape[1], sums_of(base_update[None], announced)[0].double().to(heard.device)
    noise = number * noise_var
    energies = (turns.square().sum(dim=1) - noise).clamp(min=1e-3 * noise + 1e-30)
    lengths = MOST * float(announced.values["unit"]) / announced.num_uses * energies
    cosines = turns @ own / (energies.sqrt() * own.norm().clamp(min=1e-30))
    typical = float(cosines.quantile(0.5))
    flipped = cosines * typical < -CERTAIN / 2 * (1 + noise / energies) / number
    middle = float(lengths.quantile(0.5))
    admitted = ~((flipped & (typical > 0)) | (lengths > LONG * middle))
    admitted = (admitted if bool(admitted.any()) else ~admitted).cpu()
    memory = {LENGTH: torch.tensor(middle, dtype=torch.float64)}
    return Admission(admitted, cosines.float().cpu(), lengths.float().cpu(), memory)
