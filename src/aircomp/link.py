"""The radio of a round, end to end. Read this file first.

          base station                             devices                              air

    own update, memory
          │
          ▼
      broadcast ──── Broadcast, on the wire ──►  (codebook, slots to send)
          │ Private                                                           sound: gains, power control
          │                                    messages [devices, params]  ◄── csi ──┘
                                                    │
                                                    ▼
                                                  encode ──── signal ───────►  carry: gains, sum, noise
      decode ◄───────────────────────── received ────────────────────────────────────┘
          │ Counts | Vectors | Mean | Vote
          ▼
      aggregate ──► update ──► server step (`federation/round.py`)

`communicate` is that drawing as a pure function; `Link.send` calls it and remembers what the scheme learnt. Each scheme
writes three verbs (`schemes/`), each channel two (`channel/`). Devices know what was broadcast and nothing else of the base
station. What a round took is metered from what was sent (`schemes/meter.py`).
"""

import copy
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Inexact, Int
from torch import Tensor, nn

from aircomp.aggregation.rules import Rule
from aircomp.aggregation.settings import Readout
from aircomp.channel.base import AtDevices, Attack, Channel, Csi, Direct, facts_of
from aircomp.channel.signal import Louder, Symbols
from aircomp.common import rng as rngs
from aircomp.common.boundary import ask, blaming, check_returned, name_of
from aircomp.common.checks import check_methods, check_number, check_type, describe
from aircomp.common.tensors import check_tensor
from aircomp.device.update import slot_layers
from aircomp.errors import ConfigError, ShapeError
from aircomp.measure.metrics import vector_nmse
from aircomp.quantize.fragment import num_slots
from aircomp.quantize.settings import FragmentSettings
from aircomp.schemes.base import Broadcast, Memory, Private, Scheme, SchemeContext, Sent, check_devices
from aircomp.schemes.meter import Admission, Air, add_up, amplitude_at_cap, in_units, measure
from aircomp.schemes.outputs import Mean, Output, aggregate_output, check_rule
from aircomp.schemes.registry import make_scheme, scheme_class
from aircomp.schemes.settings import SchemeSettings

LARGEST_PART = 983_040
"""Parameters that are sent at once; a multiple of usual fragment lengths. A part takes half a gigabyte with `gamp`."""
Heard = Inexact[Tensor, "antennas slots uses"]
"""What a channel returns."""
NOT_NEGATIVE = ("num_active_hat", "counts", "soft_counts", "own", "scales", "size")
"""Fields of outputs."""
VERBS = ("broadcast", "encode", "decode", "diagnose")
"""The methods of a scheme."""
FIRST_DEVICE = "the first device's message, in place of an update of the base station's own"
"""Side information of a round in which the base station has none."""
Tensors = nn.Module | Iterable[Tensor | torch.Size | Sequence[int]]
"""The parameter tensors of an update: a model's, or their shapes in order."""


class Link:
    """Sends updates over the air, round after round: scheme, channel, rule, and what the scheme remembers.

        link = Link("gamp", Awgn(snr_db=5.0), seed=0)
        sent = link.send(updates)          # [devices, params]
        sent.update, sent.nmse, sent.cost.channel_uses

    All but `round` and `memory` stays as it is made.

    Args:
        scheme: A scheme's name (`aircomp.uplink_names()`), its settings, or a scheme of your own.
        channel: `Awgn`, `Fading`, or a channel of your own.
        rule: An aggregation rule's name (`aircomp.aggregator_names()`), or a function of (counts, codewords).
        keep: Share of the mass that the trimmed means keep.
        readout: What the mean is formed of; `auto` is what the scheme recommends.
        seed: Everything random derives from it and the round.
        cap: Whether the nominal energy is the most that a device spends in a round, in place of the mean over devices.
        sketch: Channel uses of sketches before the round, over those of the update: each device sends random sums of its
            update in its own turn, and those that the base station does not admit stay silent; 0: there are none.
        tensors: A model, or shapes, so that a named scheme can tell the parameter tensors of an update apart; without them
            all are one.
        include_base_station: Whether the base station's own update joins the aggregate of a named scheme.
        device: Where a named scheme computes.
        budget: Parameters of a slot, and its real channel uses: what a round is to take. A scheme of your own whose
            `broadcast` takes `num_uses` is told it for the whole round; named schemes have settings for it.

    Raises:
        ConfigError: If scheme, channel and rule do not fit.
    """

    def __init__(
        self,
        scheme: str | SchemeSettings | Scheme,
        channel: Channel,
        rule: str | Rule = "mean",
        *,
        keep: float = 0.8,
        readout: Readout = "auto",
        seed: int = 0,
        cap: bool = False,
        sketch: float = 0.0,
        tensors: Tensors | None = None,
        include_base_station: bool = False,
        device: str | torch.device = "cpu",
        budget: tuple[int, int] | None = None,
    ):
        check_methods("channel", channel, "sound", "carry")
        check_number("seed", seed, low=0, integer=True)
        check_number("sketch", sketch, low=0, high=1)
        if sketch and not facts_of(channel).in_phase:
            raise ConfigError(
                "sketch needs signals that arrive in phase, but this channel leaves phases random; give it "
                "control='inversion', or leave sketch out"
            )
        self.channel, self.rule, self.keep, self.seed, self.cap = channel, rule, keep, seed, cap
        self.sketch = sketch
        self.budget = budget
        self.settings = _settings_of(scheme)
        """Of a scheme that came by its name or settings; None: it came as an object."""
        self.has_tensors, self.include_base_station = tensors is not None, include_base_station
        self.readout: Readout = readout
        self.scheme: Scheme = scheme if self.settings is None else self._make(tensors, device)  # pyright: ignore[reportAttributeAccessIssue]
        if readout == "auto":
            self.readout = getattr(self.scheme, "readout", "auto")
        check_rule(self.scheme.offers, rule, self.readout)
        self.part_index = 0
        """Which part of long messages it sends; see `communicate`."""
        self.round = 0
        """Rounds sent so far."""
        self.memory: Memory = {}
        """What the scheme remembers of them."""

    def __repr__(self) -> str:
        return f"<Link: {self.scheme.name} over {self.channel}, {self.round} rounds sent>"

    def _make(self, tensors: Tensors | None, device: str | torch.device) -> Scheme:
        assert self.settings is not None  # from `__init__`
        _check_phase(self.settings.name, self.channel)
        length = getattr(self.settings, "quantize", FragmentSettings()).fragment_length
        shapes = None if tensors is None else _shapes(tensors)
        layers = None if shapes is None else slot_layers([math.prod(shape) for shape in shapes], length).to(device)
        context = context_for(
            self.channel,
            layers,
            shapes,
            readout=self.readout,
            seed=self.seed,
            device=device,
            include_base_station=self.include_base_station,
        )
        return make_scheme(self.settings, context)

    def made_for(self, tensors: Tensors, device: str | torch.device) -> "Link":
        """Return a link like this one, before its first round, whose scheme knows the parameter tensors of a model."""
        made = copy.copy(self)
        made.round, made.memory = 0, {}
        if self.settings is not None and not self.has_tensors:
            made.scheme, made.has_tensors = made._make(tensors, device), True
        return made

    @torch.no_grad()
    def send(
        self,
        updates: Float[Tensor, "devices params"] | Sequence[Float[Tensor, " params"]],
        base: Float[Tensor, " params"] | None = None,
        attack: Attack | None = None,
    ) -> "Exchange":
        """Send one round's updates, and go on to the next round.

        Args:
            updates: What each transmitting device wants to say; of any length.
            base: The base station's own update, from which most schemes build what they broadcast. Without one it is the
                first device's, which then counts as side information.
            attack: Who attacks, where their updates are not honest; honest devices agree on scales without them.

        Raises:
            ShapeError: If the updates are not finite numbers, or not of one length.
        """
        messages, own = check_updates(updates, base)
        own_or_first = messages[0] if own is None else own
        sent = communicate(self, own_or_first, messages, self.memory, self.round, attack)
        if own is None and getattr(self.scheme, "reads_base", True):
            told = (*sent.air.side_information, FIRST_DEVICE)
            sent = replace(sent, air=replace(sent.air, side_information=told))
        self.memory, self.round = sent.memory, self.round + 1
        return sent

    @property
    def state(self) -> dict[str, Any]:
        """What a link that goes on elsewhere needs: the round and what the scheme remembers, as numbers and tensors."""
        return {"round": self.round, "memory": {name: value.clone() for name, value in self.memory.items()}}

    @state.setter
    def state(self, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping) or set(state) != {"round", "memory"}:
            raise ConfigError(f"state is {describe(state)}; expected what another link's state was")
        check_number("state['round']", state["round"], low=0, integer=True)
        check_type("state['memory']", state["memory"], Mapping, "tensors by name")
        for name, value in state["memory"].items():
            check_type(f"state['memory'][{name!r}]", value, Tensor, "a tensor")
        self.round, self.memory = state["round"], dict(state["memory"])

    @property
    def effective_channel(self) -> Channel:
        """What the signals really go through: bounds that are told the truth have no radio between."""
        return self.channel if self.scheme.uses_radio else Direct()

    def rng(self, purpose: str, index: int) -> torch.Generator:
        """Return the generator of a purpose in a round, and in a part of its messages where there are several."""
        parts = (self.part_index,) if self.part_index and purpose != "fading" else ()
        return rngs.generator(self.seed, purpose, index, *parts)

    def part(self, index: int, rows: slice) -> "Link":
        """Return the link for some of the parameters, which a scheme takes for the whole."""
        made = copy.copy(self)
        made.part_index, made.scheme = index, _for_rows(self.scheme, rows)
        return made


def context_for(
    channel: Channel,
    layers: Int[Tensor, " slots"] | None,
    shapes: tuple[tuple[int, ...], ...] | None,
    *,
    readout: Readout,
    seed: int,
    device: str | torch.device,
    include_base_station: bool,
) -> SchemeContext:
    """Return what a scheme is made for on a channel."""
    facts = facts_of(channel)
    return SchemeContext(
        slot_layers=layers,
        shapes=shapes,
        readout=readout,
        seed=seed,
        device=device,
        include_base_station=include_base_station,
        snr_reference=facts.snr_reference,
        block_uses=facts.block_uses,
        access_points=facts.access_points,
    )


def _for_rows(scheme: Any, rows: slice) -> Any:  # Any: a scheme, or what it is wrapped around
    """Return a scheme, and those that it wraps, made for some of the parameters."""
    made = copy.copy(scheme)
    for name, value in vars(scheme).items():
        if isinstance(value, SchemeContext) and value.slot_layers is not None:
            length = getattr(getattr(scheme, "settings", None), "quantize", FragmentSettings()).fragment_length
            slots = slice(rows.start // length, -(-rows.stop // length))
            setattr(made, name, replace(value, slot_layers=value.slot_layers[slots], shapes=None))
        elif isinstance(value, Scheme):
            setattr(made, name, _for_rows(value, rows))
    return made


def _settings_of(scheme: Any) -> SchemeSettings | None:  # Any: whatever the user passed
    if isinstance(scheme, str):
        return scheme_class(scheme).settings_class(name=scheme)
    if isinstance(scheme, SchemeSettings):
        return scheme
    check_methods("scheme", scheme, *VERBS)
    return None


def _check_phase(name: str, channel: Channel) -> None:
    """Refuse a scheme that needs gains of a common phase where the channel gives none."""
    if not facts_of(channel).in_phase and scheme_class(name).facts.needs.startswith("in phase"):
        raise ConfigError(
            f"scheme = {name!r} needs signals that arrive in phase, but this channel leaves phases random; give it "
            "control='inversion', or take another scheme, say 'blind'"
        )


def _shapes(tensors: Tensors) -> tuple[tuple[int, ...], ...]:
    if isinstance(tensors, nn.Module):
        tensors = [p for p in tensors.parameters() if p.requires_grad]
    return tuple(tuple(each.shape) if isinstance(each, Tensor) else tuple(each) for each in tensors)


def check_updates(updates: Any, base: Any) -> tuple[Tensor, Tensor | None]:  # Any: whatever the user passed
    """Return updates as one float32 tensor, and the base station's own.

    Raises:
        ShapeError: If they are not finite numbers, or not of one length.
    """
    given: Any = updates
    if isinstance(updates, list | tuple) and all(isinstance(each, Tensor) for each in updates):
        if len({each.shape for each in updates}) > 1:
            raise ShapeError(f"updates hold {describe(updates[0])} and others; expected one length for all devices")
        given = torch.stack(list(updates)) if updates else torch.zeros(0, 0)
    check_tensor("updates", given, "devices params", "floating")
    if not given.numel():
        raise ShapeError(f"updates is {describe(given)}; expected at least one device and one parameter")
    if base is None:
        return given.detach().float(), None
    check_tensor("base", base, "params", "floating")
    if base.numel() != given.shape[1]:
        raise ShapeError(f"base has {base.numel()} parameters, the updates {given.shape[1]}; expected the same number")
    return given.detach().float(), base.detach().float().to(given.device)


@dataclass(frozen=True)
class Exchange:
    """What went over the radio in a round."""

    base_update: Float[Tensor, " params"]
    messages: Float[Tensor, "devices params"]
    broadcast: Broadcast
    private: Private
    sent: Sent
    """What devices mean to send; on the air, jammers put noise in its place."""
    output: Output
    update: Float[Tensor, " params"]
    """The aggregate."""
    memory: Memory
    """What the scheme remembers for the next round."""
    air: Air
    """What the round took."""
    admission: Admission | None = None
    """What the base station found in sketches; None: there were none."""
    num_parts: int = 1
    """Parts in which long messages went. Of several, the broadcast is the first one's, and the output is the mean."""

    def __repr__(self) -> str:
        uses = self.air.channel_uses
        return f"<Exchange: {len(self.messages)} devices, {uses} channel uses, nmse {self.nmse:.3g}>"

    @property
    def num_active_hat(self) -> float | None:
        """The number of devices, as the base station estimates it or is told; None: it knows nothing of it."""
        return self.output.num_active_hat

    @property
    def cost(self) -> Air:
        """What the round took: `.channel_uses`, `.energy`, `.downlink_bits`, `.side_information`."""
        return self.air

    @property
    def delivered(self) -> Float[Tensor, "devices params"]:
        """What each device's transmission stands for: error feedback keeps the message less this."""
        return self.sent.reconstruction

    @property
    def nmse(self) -> float:
        """The squared error of the aggregate as a mean of the messages, over the squared norm of that mean."""
        return vector_nmse(self.messages.mean(dim=0), self.update)


def communicate(
    link: Link,
    base_update: Float[Tensor, " params"],
    messages: Float[Tensor, "devices params"],
    memory: Memory,
    index: int,
    attack: Attack | None = None,
) -> Exchange:
    """Send the messages of a round's devices to the base station.

    A message of more than `LARGEST_PART` parameters goes in parts, one after the other, each with a broadcast of its own, so
    that the memory of a round is that of its messages and of one part. Gains of a fading channel are the same for all parts.

    Args:
        link: Scheme, channel and rule.
        base_update: The base station's own update.
        messages: What each transmitting device wants to say.
        memory: What the scheme remembers of the rounds before.
        index: The round, from 0.
        attack: What attackers among the devices do beside what their messages say; None: there are none.
    """
    size = messages.shape[1]
    if size <= LARGEST_PART:
        return _send_part(link, base_update, messages, memory, index, attack)
    update, delivered = torch.empty_like(base_update), torch.empty_like(messages)
    found: list[Exchange] = []
    left: dict[str, Tensor] = {}
    for part, first in enumerate(range(0, size, LARGEST_PART)):
        rows = slice(first, first + LARGEST_PART)
        known = {n.removeprefix(f"{part}."): value for n, value in memory.items() if n.startswith(f"{part}.")}
        done = _send_part(link.part(part, rows), base_update[rows], messages[:, rows], known, index, attack)
        update[rows], delivered[:, rows] = done.update, done.delivered
        left |= {f"{part}.{name}": value for name, value in done.memory.items()}
        told = diagnose(link, done)
        output = Mean(mean=update[:0], num_active_hat=done.num_active_hat, diagnostics=told)
        # what a part took and told is kept, and its signal is not
        sent = replace(done.sent, signal=Symbols(messages[:, None, :0], power=0.0), reconstruction=delivered[:, :0])
        nothing = {"messages": messages[:, :0], "base_update": base_update[:0], "update": update[:0], "private": None}
        found.append(replace(done, sent=sent, output=output, **nothing))
    air = add_up([each.air for each in found])
    hats = [each.num_active_hat for each in found if each.num_active_hat is not None]
    names = list(dict.fromkeys(name for each in found for name in each.output.diagnostics))
    told = {
        name: _mean([each.output.diagnostics[name] for each in found if name in each.output.diagnostics])
        for name in names
    }
    output = Mean(mean=update, num_active_hat=_mean(hats) if hats else None, diagnostics=told)
    sent = replace(found[0].sent, reconstruction=delivered)
    return Exchange(
        base_update, messages, found[0].broadcast, None, sent, output, update, left, air, num_parts=len(found)
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def diagnose(link: Link, exchange: "Exchange") -> dict[str, float]:
    """Return what the receiver noticed, and how well it did: metrics only, never fed back; of parts the mean."""
    if exchange.num_parts > 1:
        return dict(exchange.output.diagnostics)
    found = ask(link.scheme.diagnose, exchange.sent, exchange.broadcast, exchange.output)
    check_returned(link.scheme.diagnose, found, Mapping[str, float])
    return {**exchange.output.diagnostics, **found}


def _send_part(
    link: Link,
    base_update: Float[Tensor, " params"],
    messages: Float[Tensor, "devices params"],
    memory: Memory,
    index: int,
    attack: Attack | None,
) -> Exchange:
    announced, private = broadcast(link, base_update, memory, index)
    csi = sound(link, len(messages), announced, index)
    if attack is not None:
        csi = replace(csi, at_devices=csi.at_devices.attacked(attack))
    admission = None
    if link.sketch and announced.num_uses:
        from aircomp.schemes.sketch import admit, without_refused  # few rounds have sketches

        uses, rng = int(link.sketch * announced.num_uses), partial(link.rng, index=index)
        radio, channel = link.scheme.uses_radio, link.effective_channel
        admission = admit(channel, base_update, messages, memory, uses, attack, rng, radio)
        csi = without_refused(csi, admission.admitted, announced.num_uses)
    sent = on_air = encode(link, messages, announced, csi, index)
    if attack is not None and link.scheme.uses_radio and announced.num_uses:
        from aircomp.schemes.attack import attacked  # few rounds have attackers

        on_air, csi = attacked(link.scheme.name, sent, announced, csi, attack, rng=link.rng("jamming", index))
    received = carry(link, on_air, csi, index)
    output, memory = decode(link, received, replace(announced, agreed=sent.agreed), private, csi)
    update = aggregate(link, output, base_update)
    with blaming(sent.signal):
        air = measure(link.scheme, announced, on_air, csi)
    if admission is not None and admission.air is not None:
        memory, air = {**memory, **admission.memory}, add_up([in_units(admission.air, sent.signal.power), air])
    return Exchange(base_update, messages, announced, private, sent, output, update, memory, air, admission)


def broadcast(
    link: Link, base_update: Float[Tensor, " params"], memory: Memory, index: int
) -> tuple[Broadcast, Private]:
    """Let the base station announce the round."""
    verb = link.scheme.broadcast
    granted = {}
    if link.budget is not None and "num_uses" in inspect.signature(verb).parameters:
        granted = {"num_uses": num_slots(base_update.numel(), link.budget[0]) * link.budget[1]}
    found = ask(verb, base_update, memory, rng=link.rng("codebook", index), **granted)
    pair = isinstance(found, tuple) and len(found) == 2
    check_type(
        "what the scheme's broadcast returned", found[0] if pair else found, Broadcast, "(Broadcast, what it keeps)"
    )
    check_returned(link.scheme.broadcast, found[0], Broadcast, non_negative=("num_params", "num_uses"))
    if found[0].num_params != base_update.numel():
        raise ConfigError(
            f"the scheme {link.scheme.name} broadcast for {found[0].num_params} parameters; expected {base_update.numel()}, "
            "the length of the update"
        )
    return found


def sound(link: Link, num_devices: int, announced: Broadcast, index: int) -> Csi:
    """Draw the round's channel state, the same for every scheme."""
    channel = link.effective_channel
    csi = ask(channel.sound, num_devices, announced.num_uses, rng=link.rng("fading", index))
    check_returned(channel.sound, csi, Csi, {"devices": num_devices})
    return csi


def encode(link: Link, messages: Float[Tensor, "devices params"], announced: Broadcast, csi: Csi, index: int) -> Sent:
    """Turn every device's message into what it sends; devices read the broadcast off the wire."""
    check_devices(link.scheme, len(messages))
    heard = announced.at_devices(messages.device)
    verb, sizes = link.scheme.encode, {"devices": len(messages), "params": messages.shape[1]}

    # what is random is drawn again as it was, where devices send a second time under a cap
    def send(known: AtDevices) -> Sent:
        sent = ask(verb, messages, heard, known, rng=link.rng("encode", index))
        check_type("what the scheme's encode returned", sent, Sent, "an aircomp.Sent")
        check_returned(verb, sent, Sent, sizes, ("pilot_uses",))
        if sent.amplitude is not None:
            raise ConfigError(
                f"{name_of(verb)} returned amplitude = {sent.amplitude}; expected None, which the link changes"
            )
        return sent

    return within_cap(link, send, announced, csi)


def within_cap(link: Link, send: Callable[[AtDevices], Sent], announced: Broadcast, csi: Csi) -> Sent:
    """Encode; under a cap, encode again at the gain that uses the full budget."""
    sent = send(csi.at_devices)
    if not link.cap or not link.scheme.uses_radio:
        return sent
    amplitude = amplitude_at_cap(announced, sent, csi)
    return replace(send(csi.at_devices.louder(amplitude)), amplitude=amplitude)


def carry(link: Link, sent: Sent, csi: Csi, index: int) -> Any:
    """Let the air add it all up; what a cap made louder, the base station divides by."""
    if sent.payload is not None:
        if facts_of(link.channel).disturbed:
            raise ConfigError(
                f"the scheme {link.scheme.name} is taken to reach the capacity of white noise, but channel.disturbance was "
                "given; use a scheme that sends a signal, say tdma-coded"
            )
        return sent.payload
    signal = sent.signal if sent.amplitude is None else Louder(sent.signal, sent.amplitude)
    channel, rng = link.effective_channel, link.rng("noise", index)
    with blaming(sent.signal):  # which the channel calls
        received = ask(channel.carry, signal, csi, rng=rng)
    check_returned(channel.carry, received, Heard)
    return received if sent.amplitude is None else received / sent.amplitude


def decode(link: Link, received: Any, announced: Broadcast, private: Private, csi: Csi) -> tuple[Output, Memory]:
    """Recover what the scheme offers."""
    verb, offers = link.scheme.decode, link.scheme.offers
    found = ask(verb, received, announced, private, csi.at_receiver)
    if not isinstance(found, tuple) or len(found) != 2:
        raise ConfigError(
            f"{name_of(verb)} returned {describe(found)}; expected ({offers.__name__}, what it remembers)"
        )
    output, memory = found
    check_type("what the scheme's decode returned", output, offers, f"{offers.__name__}")
    check_returned(verb, output, offers, {"params": announced.num_params}, NOT_NEGATIVE)
    check_returned(verb, memory, Memory)
    return output, memory


def aggregate(link: Link, output: Output, base_update: Float[Tensor, " params"]) -> Float[Tensor, " params"]:
    """Form one update of it; some rules compare with the base station's own."""
    return aggregate_output(output, link.rule, keep=link.keep, readout=link.readout, base=base_update)
