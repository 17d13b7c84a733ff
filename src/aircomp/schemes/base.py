"""The one interface of every scheme, and what its verbs pass on; `aircomp.link` puts them together.

                 base station                            devices

    broadcast ──► Broadcast ───── its wire form ─────► Broadcast ──► encode ──► Sent
              └─► Private ──► decode ◄── received ◄───── air ◄───────────────────┘

Devices know what was broadcast and nothing else of the base station: `encode` sees the `Broadcast` after a round trip
through its wire form, whose length is what the meter counts. A scheme never sees the truth on its receiving side either:
`decode` gets what the antennas heard, and what the receiver knows of the channel. `diagnose` compares both sides afterwards,
for metrics only.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aircomp.aggregation.settings import Readout
from aircomp.channel.base import AtDevices, AtReceiver
from aircomp.channel.signal import Signal, slot_blocks
from aircomp.common.radio import SnrReference
from aircomp.errors import ArtefactError, ConfigError
from aircomp.measure.metrics import vector_nmse
from aircomp.schemes.outputs import Mean, Output
from aircomp.schemes.settings import PlainSettings, SchemeSettings
from aircomp.schemes.wire import from_wire, to_wire

if TYPE_CHECKING:
    from aircomp.schemes.registry import Facts

Memory = Mapping[str, Tensor]
"""What a scheme keeps from round to round, by name: part of the run's state, saved in its checkpoints."""

NOISE_VAR = "noise_var"
"""What links remember whose next round depends on it: the noise variance of a channel use, as they estimated it last."""
NUM_DEVICES = "num_devices"
"""… and likewise how many devices sent."""


@dataclass(frozen=True)
class SchemeContext:
    """What a scheme is made for."""

    slot_layers: Int[Tensor, " slots"] | None = None
    """The parameter tensor of each fragment of the update, for decoders that use it."""
    shapes: tuple[tuple[int, ...], ...] | None = None
    """The shapes of those tensors, in the order of the update; None: a tensor is known by its length alone."""
    seed: int = 0
    """What a random-access codebook is drawn from."""
    device: str | torch.device = "cpu"
    include_base_station: bool = False
    """Whether the base station's own update joins the aggregate."""
    snr_reference: SnrReference = "round"
    """What the receiver knows of its noise: one variance over the round, or under `slot` one for each slot."""
    block_uses: int = 0
    """Channel uses of a coherence block, where gains differ from block to block; 0: gains of one."""
    access_points: int = 1
    """Places over which the base station's antennas are spread."""
    readout: Readout = "auto"
    """What the mean will be formed of, for schemes that send by it."""

    def parameter_layers(self, num_params: int, fragment_length: int) -> Int[Tensor, " params"]:
        """Return the parameter tensor of every parameter, as its fragment has it; one for all where nobody told."""
        if self.slot_layers is None:
            return torch.zeros(num_params, dtype=torch.int64)
        return self.slot_layers.repeat_interleave(fragment_length)[:num_params]

    def tensor_shapes(self, num_params: int) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the update's tensors; where nobody told them, each tensor has one axis.

        Raises:
            ConfigError: If they do not add up to the update.
        """
        shapes = self.shapes
        if shapes is None and self.slot_layers is not None and len(self.slot_layers):
            each = self.slot_layers.repeat_interleave(-(-num_params // len(self.slot_layers)))[:num_params]
            shapes = tuple((int(length),) for length in each.unique_consecutive(return_counts=True)[1])
        if shapes is None:
            return ((num_params,),)
        if (told := sum(map(math.prod, shapes))) != num_params:
            raise ConfigError(
                f"tensors add up to {told:,} parameters, the update has {num_params:,}; expected the same number"
            )
        return shapes


Private = Any
"""What the base station keeps of a round until it decodes: the scheme's own; devices never see it."""


@dataclass(frozen=True)
class Broadcast:
    """What the base station sends to all devices before the round: the only thing of it that they know."""

    num_params: int
    num_uses: int
    """Channel uses of the round as its signal counts them; the meter counts a complex one as two real ones."""
    values: Mapping[str, Tensor] = field(default_factory=dict)
    """What devices are told beside that, by name."""
    agreed: Mapping[str, Tensor] = field(default_factory=dict)
    """What devices and base station agreed on after it, from `Sent`; no part of the wire form."""

    @cached_property
    def wire(self) -> bytes:
        """What goes over the downlink."""
        if SIZES in self.values:
            raise ConfigError(f"the scheme broadcasts a value named {SIZES!r}, which every broadcast has; rename it")
        sizes = torch.tensor([self.num_params, self.num_uses])
        return to_wire({SIZES: sizes, **self.values}, "the scheme broadcasts")

    @classmethod
    def read(cls, wire: bytes, device: str | torch.device = "cpu") -> "Broadcast":
        """Return what devices know of a broadcast, from its wire form alone."""
        values = from_wire(wire, device)
        num_params, num_uses = values.pop(SIZES).tolist()
        return Broadcast(num_params, num_uses, values)

    def at_devices(self, device: str | torch.device = "cpu") -> "Broadcast":
        """Return what devices read of the wire form."""
        return self.read(self.wire, device)


SIZES = "sizes"
"""The two sizes of a broadcast, in its wire form."""


@dataclass(frozen=True)
class Sent:
    """What the devices send, and what each believes it sent."""

    signal: Signal
    reconstruction: Float[Tensor, "devices params"]
    """The update that each device's transmission stands for, zero where it was silent; error feedback keeps the rest."""
    delivered: Bool[Tensor, "devices slots"] | None = None
    """Which slots each device sent in: silence is per coherence block. None: everybody in all of them."""
    pilot_uses: int = 0
    """Channel uses of the round that carry pilots, counted like those of the round."""
    agreed: Mapping[str, Tensor] = field(default_factory=dict)
    """What all devices and the base station agree on before they send, such as a common scale; the scheme's
    `side_information` says what it takes, and the meter counts its bits."""
    payload: Any = None
    """What arrives without error, of schemes that are assumed to reach capacity; `decode` gets it in place of what antennas
    heard. None: they send a real signal."""
    capped: bool = False
    """Whether the nominal energy is the most that any device spends, in place of what they spend on average."""
    amplitude: float | None = None
    """What everybody sends louder by, so that the device that spends most spends the nominal energy; the base station knows
    it. None: the round has no such cap. The link sets it, no scheme does."""


def remembered(memory: Memory, name: str) -> float | None:
    """Return a number of the last round, which may come from a file."""
    found = memory.get(name)
    if found is not None and (found.numel() != 1 or not found.is_floating_point()):
        raise ArtefactError(
            f"the scheme remembers {name} as {found.dtype} {list(found.shape)}; expected one number, so start the run anew"
        )
    return None if found is None else float(found)


def in_phase(received: Tensor) -> Float[Tensor, "slots uses"]:
    """Return what the first antenna heard in phase: power control lets signals arrive there."""
    return received[0].real if received.is_complex() else received[0]


def where_speaking(messages: Float[Tensor, "devices params"], csi: AtDevices, uses: int) -> Tensor:
    """Return the messages with zeros where a device is silent, of schemes that send parameter after parameter.

    Args:
        messages: What the devices want to say, one parameter a channel use.
        csi: Who is silent when.
        uses: Channel uses of a slot.
    """
    num_params = messages.shape[1]
    speaking = csi.speaking(-(-num_params // uses), uses)
    if speaking is None:
        return messages
    return messages * speaking.to(messages.device).repeat_interleave(uses, dim=1)[:, :num_params]


def slot_snr(csi: AtDevices, slots: int, uses: int, name: str) -> Float[Tensor, "devices told"]:
    """Return every device's SNR as it would send alone, in each slot, or one for all of them.

    Args:
        csi: What devices know.
        slots: How many slots.
        uses: Channel uses of a slot.
        name: The scheme that depends on it.

    Raises:
        ConfigError: If the channel does not tell it.
    """
    if csi.snr is None:
        raise ConfigError(
            f"uplink = {name!r} sends by the devices' SNR, which this channel does not tell; give its AtDevices the field "
            "snr, or use another uplink"
        )
    return csi.snr[:, slot_blocks(slots, uses, csi.block_uses)] if csi.block_uses else csi.snr


MEAN_ENERGY = ("the mean energy of what devices want to send, which sets their common scale",)
LARGEST_ENERGY = ("the largest energy of what devices want to send, which sets their common scale",)
"""Side information of schemes whose devices agree on a scale."""


def new_seed(rng: torch.Generator) -> Int[Tensor, ""]:
    """Draw a seed that the base station announces, so that all know what is drawn from it."""
    return torch.randint(2**62, (), generator=rng)


def error_of_mean(sent: Sent, found: Float[Tensor, " params"]) -> dict[str, float]:
    """Compare a mean with that of what devices sent: all that schemes without counts have to diagnose."""
    return {"update_nmse": vector_nmse(sent.reconstruction.mean(dim=0), found)}


class Scheme(ABC):
    """Three verbs, what the scheme offers, and a look at how well it did.

    By default a scheme uses the radio, estimates the number of devices, and is told nothing beside it. Its settings and what
    it is made for come to its constructor; nothing else stays on the object, so that any device or server can make its own.
    """

    name: str
    """What settings and results call it; the decorator `scheme` sets it."""
    facts: "Facts"
    """What is said of it; from the decorator."""
    offers: type[Output]
    """The form of its output; rules that it cannot serve are refused before training."""
    settings_class: type[SchemeSettings] = PlainSettings
    """What can be set of it."""
    uses_radio: bool = True
    """False for bounds that are told the truth: their signals arrive as they are."""
    estimates_num_active: bool = True
    """Whether the number of devices is estimated, not told."""
    side_information: tuple[str, ...] = ()
    """What reaches the base station outside the radio, in words. Nothing may be missing here."""
    reads_base: bool = True
    """Whether what is broadcast depends on the base station's own update, beyond its length."""
    most_devices: int | None = None
    """How many devices may send at once; None: any number."""
    fewest_devices: int = 0
    """How many devices must send at least in every round, of schemes that were trained for so many."""
    for_more_devices: str = "choose another uplink"
    """What lets more of them send."""
    readout: Readout = "auto"
    """What the mean is formed of where the user does not say."""
    power_control: tuple[str, str] | None = None
    """Of a scheme over fading that is another one with a power control of its own: which control, and which scheme."""
    needs_places: bool = False
    """Whether it counts by how loud antennas in several places hear a device."""

    @classmethod
    def make(cls, settings: Any, context: SchemeContext) -> "Scheme":  # Any: of the scheme's own class
        """Build the scheme; one that differs with the channel overrides this."""
        return cls(settings, context)  # pyright: ignore[reportCallIssue]

    @abstractmethod
    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Return what the base station announces before the round and what it keeps, from its own update and its memory.

        A scheme of your own may also take `num_uses=None`: the real channel uses that a comparison grants the round.
        """

    @abstractmethod
    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Turn every active device's message into what it sends."""

    @abstractmethod
    def decode(self, received: Any, broadcast: Broadcast, private: Private, csi: AtReceiver) -> tuple[Output, Memory]:
        """Recover what the base station aggregates, and what it remembers for the next round."""

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Any) -> dict[str, float]:
        """Compare what was sent with what was received: metrics only, never fed back."""
        return {}

    def check_round(self, num_slots: int, num_active: int) -> None:  # noqa: B027  most schemes serve any number
        """Refuse more devices than a round of so many slots serves."""

    def operations(self, num_slots: int) -> float | None:
        """Return the base station's arithmetic for a round of so many slots; None: it is counted while a round is decoded."""
        return None


class MeanScheme(Scheme):
    """A scheme that offers the mean, and is judged by it."""

    offers = Mean

    def diagnose(self, sent: Sent, broadcast: Broadcast, output: Mean) -> dict[str, float]:
        """Compare with the mean of what devices sent."""
        return error_of_mean(sent, output.mean)


def check_devices(uplink: Any, devices: int, fewest: int | None = None) -> None:
    """Refuse more devices than a scheme was designed or trained for, or fewer.

    Args:
        uplink: A scheme; one that is not a `Scheme` has no limit.
        devices: How many may send at once.
        fewest: How many send at least; None: that is not known.

    Raises:
        ConfigError: If they are more, or fewer.
    """
    most = getattr(uplink, "most_devices", None)
    if most is not None and devices > most:
        raise ConfigError(
            f"{devices} devices may send at once, but uplink = {uplink.name!r} is for {most} at most; "
            f"{uplink.for_more_devices}, or let fewer take part"
        )
    least = getattr(uplink, "fewest_devices", 0)
    if fewest is not None and fewest < least:
        raise ConfigError(
            f"only {fewest} devices may send at once, but uplink = {uplink.name!r} is for {least} at least; let more take "
            "part"
        )


class Relay(Scheme):
    """A scheme that sends what another link sends, and hears it in its own way.

    Args:
        link: What is broadcast and sent.
    """

    def __init__(self, link: Any):  # Any: each has a link of its own kind
        self.link = link

    def broadcast(
        self, base_update: Float[Tensor, " params"], memory: Memory, *, rng: torch.Generator
    ) -> tuple[Broadcast, Private]:
        """Broadcast what the link would."""
        return self.link.broadcast(base_update, memory, rng=rng)

    def encode(
        self, messages: Float[Tensor, "devices params"], broadcast: Broadcast, csi: AtDevices, *, rng: torch.Generator
    ) -> Sent:
        """Send what the link would."""
        return self.link.encode(messages, broadcast, csi, rng=rng)
