"""The adapter in Flower's hands, in a loop in this process; test_flower_engines.py has Flower's own engines."""

import logging
import os
import warnings

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # before flwr is imported, which reads it once

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("flwr", reason="needs Flower: pip install 'aircomp[flower]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what Flower's own imports have to say
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.common.constant import ErrorCode
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.task_identity import TaskIdentity

import aircomp
from aircomp.adapters.flower import ClientFailed, UplinkStrategy, uplink_mod
from aircomp.adapters.flower_records import ANNOUNCED, MEMORY, SENT
from aircomp.channel.awgn import Awgn
from aircomp.channel.base import make_channel
from aircomp.channel.settings import ChannelSettings, PowerSettings
from aircomp.channel.signal import Symbols
from aircomp.common.rng import generator
from aircomp.device.settings import FeedbackSettings
from aircomp.errors import ConfigError
from aircomp.link import Link, communicate
from aircomp.quantize.codebook import lookup
from aircomp.quantize.fragment import join
from aircomp.schemes.base import Broadcast, Scheme, Sent
from aircomp.schemes.digital.counting import LEARNED
from aircomp.schemes.ideal import Ideal
from aircomp.schemes.outputs import Mean, Vote
from aircomp.schemes.registry import scheme_class
from aircomp.server.settings import ServerSettings
from helpers.schemes import sized

SHAPES = {"weight": (6, 20), "bias": (7,)}
NUM_PARAMS = 127


class LoopGrid(Grid):
    """Flower's grid as a loop in this process; as in Flower, what a client raises becomes a reply."""

    def __init__(self, app, num_nodes):
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        self.app, self.contexts, self.gone, self.replies = app, {}, set(), []
        for partition in range(num_nodes):
            self.join(partition)

    def join(self, partition):
        config = {"partition-id": partition}
        self.contexts[100 + partition] = Context(1, 100 + partition, config, RecordDict(), {})

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        replies = [self._reply(m) for m in reversed(list(messages))]  # any order may come
        self.replies += replies
        return replies

    def _reply(self, message):
        node = message.metadata.dst_node_id
        if node in self.gone:
            reply = Message(Error(ErrorCode.NODE_UNAVAILABLE, "Node Unavailable"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = 1  # the SuperLink answers in its own name
            return reply
        try:
            return self.app(message, self.contexts[node])
        except Exception as error:
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error)}:<'{error}'>"), reply_to=message)

    def run(self):
        raise NotImplementedError

    set_run = create_message = push_messages = pull_messages = run


def initial_arrays(shapes=SHAPES):
    return ArrayRecord({name: Array(np.zeros(shape, np.float32)) for name, shape in shapes.items()})


def update_of(server_round, device, num_params=NUM_PARAMS):
    common = torch.randn(num_params, generator=generator(0, "common", server_round))
    return 0.1 * common + 0.02 * torch.randn(num_params, generator=generator(0, "own", server_round, device))


def flat(arrays):
    return torch.cat([torch.from_numpy(a.numpy()).flatten() for a in arrays.values()])


def moved(arrays, update):
    parts = update.split([a.numpy().size for a in arrays.values()])
    return ArrayRecord(
        {n: Array(a.numpy() + p.numpy().reshape(a.shape)) for (n, a), p in zip(arrays.items(), parts, strict=True)}
    )


def make_app(mods=(uplink_mod,), train=None):
    app = ClientApp(mods=list(mods))

    @app.train()
    def train_device(message, context):
        server_round, device = message.content["config"]["server-round"], context.node_config["partition-id"]
        arrays = message.content["arrays"]
        trained = train(arrays, device) if train else moved(arrays, update_of(server_round, device))
        metrics = MetricRecord({"num-examples": 1 + device, "loss": float(device)})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        if context.node_config["partition-id"] == 2:
            raise ValueError("no test data")
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


def make_scheme(name, num_codewords=16, codeword_length=32, **options):
    sizes = {"fragment_length": 5, "num_codewords": num_codewords, "codeword_length": codeword_length}
    return aircomp.make_scheme(sized(name, **sizes, **options))


def make_strategy(uplink, *, fraction_train=1.0, fraction_evaluate=0.0, **options):
    selection = FedAvg(
        fraction_train=fraction_train, fraction_evaluate=fraction_evaluate, min_train_nodes=1, min_available_nodes=1
    )
    base = lambda server_round, arrays: moved(arrays, update_of(server_round, 99))  # noqa: E731
    uplink = make_scheme(uplink) if isinstance(uplink, str) else uplink
    return UplinkStrategy(selection, uplink, base, **{"channel": Awgn(20.0)} | options)


def start(strategy, grid, rounds=1, arrays=None):
    return strategy.start(grid, arrays or initial_arrays(), num_rounds=rounds)


# ------------------------------------------------------------------------------------------------------- the device


def test_a_reply_carries_one_byte_a_fragment_and_the_memory_stays():
    grid = LoopGrid(make_app(), 1)
    start(make_strategy("perfect"), grid)
    sent = grid.replies[0].content["arrays"]
    assert list(sent) == [SENT]
    assert sent[SENT].numpy().dtype == np.uint8
    assert sent[SENT].numpy().shape == (26,)  # 127 parameters in fragments of 5
    assert grid.contexts[100].state[MEMORY]["message"].numpy().shape == (NUM_PARAMS,)


def test_beyond_256_codewords_an_index_takes_two_bytes():
    shapes = {"weight": (300, 5)}
    app = make_app(train=lambda arrays, device: moved(arrays, update_of(1, device, 1500)))
    strategy = UplinkStrategy(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=1),
        make_scheme("perfect", num_codewords=300, codeword_length=256),
        lambda server_round, arrays: moved(arrays, update_of(1, 99, 1500)),
    )
    grid = LoopGrid(app, 2)
    start(strategy, grid, arrays=initial_arrays(shapes))
    sent = grid.replies[0].content["arrays"][SENT].numpy()
    assert sent.dtype == np.int16
    assert sent.max() > 255


@pytest.mark.seconds
def test_error_feedback_telescopes_over_rounds(as_in_production):
    codebooks = []

    def spy(message, context, call_next):
        codebooks.append(torch.from_numpy(message.content[ANNOUNCED]["codebook"].numpy()))
        return call_next(message, context)

    grid, told = LoopGrid(make_app([spy, uplink_mod]), 1), torch.zeros(NUM_PARAMS)
    strategy, arrays = make_strategy("perfect"), initial_arrays()
    for server_round in (1, 2, 3):
        replies = grid.send_and_receive(strategy.configure_train(server_round, arrays, ConfigRecord(), grid))
        indices = torch.from_numpy(replies[0].content["arrays"][SENT].numpy())
        told += join(lookup(indices, codebooks[-1]), NUM_PARAMS)
        arrays, _ = strategy.aggregate_train(server_round, replies)
    wanted = sum(update_of(r, 0) for r in (1, 2, 3))
    kept = grid.contexts[100].state[MEMORY]
    memory = torch.from_numpy(kept["message"].numpy() - kept["chosen"].numpy())
    assert memory.norm() > 0.1  # much was left out
    # weights of order one are moved and subtracted again: a few units in the last place of float32
    torch.testing.assert_close(told + memory, wanted, rtol=0, atol=2e-6)


def test_without_feedback_nothing_is_kept():
    grid = LoopGrid(make_app(), 2)
    result = start(make_strategy("perfect", feedback=FeedbackSettings(kind="off")), grid, rounds=2)
    assert MEMORY not in grid.contexts[100].state
    assert result.train_metrics_clientapp[2]["uplink.feedback_ratio"] == 0


def test_the_training_sees_the_message_as_if_we_were_not_there():
    seen = []

    def look(message, context, call_next):
        seen.append(set(message.content))
        return call_next(message, context)

    start(make_strategy("perfect"), LoopGrid(make_app([uplink_mod, look]), 1))
    assert seen == [{"arrays", "config"}]


def test_a_strategy_of_flowers_own_works_with_the_mod_in_place():
    grid = LoopGrid(make_app(), 2)
    result = start(FedAvg(fraction_evaluate=0.0), grid)
    wanted = (update_of(1, 0) + 2 * update_of(1, 1)) / 3  # weighted by examples
    torch.testing.assert_close(flat(result.arrays), wanted, rtol=0, atol=1e-6)


# ------------------------------------------------------------------------------------------------------- the server


def test_the_ideal_uplink_gives_the_mean_of_all_clients():
    result = start(make_strategy("ideal"), LoopGrid(make_app(), 3))
    wanted = torch.stack([update_of(1, d) for d in range(3)]).mean(dim=0)
    torch.testing.assert_close(flat(result.arrays), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("uplink", ["perfect", "amp-da", "gamp"])
@pytest.mark.parametrize("rule", ["mean", "trimmed-mean", lambda counts, codewords: codewords[counts.argmax(dim=1)]])
def test_uplinks_decoders_and_rules_combine_freely(uplink, rule):
    result = start(make_strategy(uplink, aggregator=rule), LoopGrid(make_app(), 4), rounds=2)
    wanted = torch.stack([update_of(1, d) + update_of(2, d) for d in range(4)]).mean(dim=0)
    error = (flat(result.arrays) - wanted).norm() / wanted.norm()
    assert error < 0.9  # coarse codebooks leave much out, but the model moves the right way: 1.0 is standing still
    assert result.train_metrics_clientapp[2]["uplink.num_active"] == 4


@pytest.mark.parametrize(
    ("uplink", "rule"),
    [
        ("baa", "mean"),
        ("learned-analog", "mean"),
        ("obda", "sign-vote"),
        ("tdma-vq", "trimmed-mean"),
        ("perfect", "majority-vote"),
    ],
)
def test_every_form_of_output_moves_the_model(uplink, rule):
    """A mean, a vote, vectors and counts, as `communicate` gives them."""
    scheme, off = make_scheme(uplink), FeedbackSettings(kind="off")
    result = start(make_strategy(scheme, aggregator=rule, feedback=off), LoopGrid(make_app(), 4))
    base, *messages = (update_of(1, d) for d in (99, *range(4)))
    done = communicate(Link(scheme, Awgn(20.0), rule), base, torch.stack(messages), {}, 0)
    torch.testing.assert_close(flat(result.arrays), done.update, rtol=0, atol=1e-6)
    assert float(done.update @ torch.stack(messages).mean(dim=0)) > 0


def by_hand(link, num_devices, rounds):
    """Return the model after some rounds over the link, without Flower."""
    model, memory, remembered = torch.zeros(NUM_PARAMS), torch.zeros(num_devices, NUM_PARAMS), {}
    for r in range(1, rounds + 1):
        base, *updates = ((model + update_of(r, d)) - model for d in (99, *range(num_devices)))  # rounded as clients do
        messages = memory + torch.stack(updates)
        exchange = communicate(link, base, messages, remembered, r - 1)
        model, remembered = model + exchange.update, exchange.memory
        memory = messages - exchange.sent.reconstruction
    return model


@pytest.mark.parametrize(("repeat", "readout"), [(1, "integers"), (3, "soft")])
def test_the_adapter_does_what_the_uplink_does(repeat, readout):
    uplink, noisy = make_scheme("gamp", repeat=repeat), Awgn(0.0)  # so much noise that the same must be drawn
    grid = LoopGrid(make_app(), 3)
    result = start(make_strategy(uplink, channel=noisy, readout=readout), grid, rounds=2)
    indices, numbers = (26,), (NUM_PARAMS,)  # the strategy encodes for links with something around them
    assert grid.replies[0].content["arrays"][SENT].numpy().shape == (indices if repeat == 1 else numbers)
    torch.testing.assert_close(
        flat(result.arrays), by_hand(Link(uplink, noisy, readout=readout), 3, 2), rtol=0, atol=1e-6
    )


def test_soft_counts_are_refused_for_a_rule_that_needs_integers():
    with pytest.raises(ConfigError, match="readout = 'soft' is for the mean"):
        make_strategy("gamp", aggregator="trimmed-mean", readout="soft")


def test_every_optimiser_keeps_its_state_between_rounds():
    momentum = ServerSettings(kind="fedavgm", momentum=0.5)
    result = start(make_strategy("ideal", server=momentum), LoopGrid(make_app(), 2), rounds=2)
    first, second = (torch.stack([update_of(r, d) for d in range(2)]).mean(dim=0) for r in (1, 2))
    torch.testing.assert_close(flat(result.arrays), first + (0.5 * first + second), rtol=0, atol=1e-6)


def test_the_wrapped_strategy_selects():
    grid = LoopGrid(make_app(), 4)
    result = start(make_strategy("gamp", fraction_train=0.5), grid)
    assert len(grid.replies) == 2
    assert result.train_metrics_clientapp[1]["uplink.num_active"] == 2


def test_clients_metrics_are_aggregated_as_the_wrapped_strategy_does():
    result = start(make_strategy("gamp"), LoopGrid(make_app(), 2))
    metrics = result.train_metrics_clientapp[1]
    assert metrics["loss"] == pytest.approx(2 / 3)  # 0 with one example, 1 with two
    assert metrics["uplink.count_accuracy"] > 0.5
    assert metrics["uplink.num_active_hat"] == pytest.approx(2, abs=0.5)


def test_statistics_of_batchnorm_travel_beside_the_radio():
    torch_rng = generator(0, "buffers")
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    means = torch.randn(3, 6, generator=torch_rng)

    def train(arrays, device):
        state = arrays.to_torch_state_dict()
        state["1.running_mean"] = means[device]
        state["1.num_batches_tracked"] += 5
        return ArrayRecord(state)

    strategy = UplinkStrategy(
        FedAvg(fraction_evaluate=0.0),
        make_scheme("ideal"),
        lambda server_round, arrays: arrays,
        parameters=[name for name, _ in module.named_parameters()],
    )
    initial = ArrayRecord(module.state_dict())
    result = start(strategy, LoopGrid(make_app(train=train), 3), arrays=initial)
    assert list(result.arrays) == list(initial)
    state = result.arrays.to_torch_state_dict()
    torch.testing.assert_close(state["1.running_mean"], means.mean(dim=0), rtol=0, atol=1e-6)
    torch.testing.assert_close(state["0.weight"], module[0].weight.detach(), rtol=0, atol=0)
    assert state["1.num_batches_tracked"] == 0


def test_an_integer_array_on_the_radio_is_refused_with_the_remedy():
    arrays = ArrayRecord(nn.BatchNorm1d(6).state_dict())
    with pytest.raises(ConfigError, match=r"'num_batches_tracked' holds int64.*parameters=\[name for"):
        start(make_strategy("ideal"), LoopGrid(make_app(), 2), arrays=arrays)


class Added(Scheme):
    """A scheme of one's own: whole messages, added up in the air by a channel of one's own."""

    name, offers = "added", Mean

    def broadcast(self, base_update, memory, *, rng):
        return Broadcast(base_update.numel(), base_update.numel()), None

    def encode(self, messages, broadcast, csi, *, rng):
        return Sent(Symbols(messages[:, None], power=1.0), messages)

    def decode(self, received, broadcast, private, csi):
        return Mean(mean=received[0, 0] / 3, num_active_hat=3.0), {}


def test_a_scheme_of_ones_own_works_without_a_line_for_it():
    result = start(make_strategy(Added(), channel=Awgn(200.0)), LoopGrid(make_app(), 3))
    wanted = torch.stack([update_of(1, d) for d in range(3)]).mean(dim=0)
    torch.testing.assert_close(flat(result.arrays), wanted, rtol=0, atol=1e-6)
    assert result.train_metrics_clientapp[1]["uplink.channel_uses"] == NUM_PARAMS


def test_a_scheme_on_the_radio_needs_a_channel():
    with pytest.raises(ConfigError, match=r"'added' uses the radio, but no channel was given"):
        make_strategy(Added(), channel=None)


class Fading(Ideal):
    """An uplink without a codebook that loses the last device's message."""

    name = "fading"

    def encode(self, messages, broadcast, csi, *, rng):
        heard = torch.cat([messages[:-1], torch.zeros_like(messages[:1])])
        return Sent(Symbols(heard[:, None], power=0.0), heard)


def said_by(device, replies):
    """Return the message that a device's last reply carries whole."""
    own = [r for r in replies if r.metadata.src_node_id == 100 + device]
    return torch.from_numpy(own[-1].content["arrays"][SENT].numpy())


@pytest.mark.parametrize("kind", ["plain", "off"])
def test_a_device_that_was_not_heard_says_all_of_it_in_the_next_round(kind):
    grid, feedback = LoopGrid(make_app(), 2), FeedbackSettings(kind=kind)
    result = start(make_strategy(Fading(), feedback=feedback), grid, rounds=2)
    wanted = update_of(2, 1) + (update_of(1, 1) if kind == "plain" else 0)
    torch.testing.assert_close(said_by(1, grid.replies), wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(said_by(0, grid.replies), update_of(2, 0), rtol=0, atol=1e-5)
    ratio = result.train_metrics_clientapp[1]["uplink.feedback_ratio"]
    assert ratio == pytest.approx(0.5 if kind == "plain" else 0.0, rel=1e-5)


FADING = ChannelSettings(kind="fading", antennas=16, snr_db=20.0)


@pytest.mark.parametrize("name", aircomp.uplink_names())
def test_every_scheme_with_error_feedback_does_under_flower_what_it_does_alone(name):
    # a trained layer has its own size, and a block of a code needs longer slots
    trained = scheme_class(name).facts.sends == LEARNED
    uplink = aircomp.make_scheme(name) if trained else make_scheme(name, codeword_length=128)
    rule = "sign-vote" if uplink.offers is Vote else "mean"
    air = make_channel(FADING, PowerSettings()) if uplink.needs_places else Awgn(20.0)
    result = start(make_strategy(uplink, aggregator=rule, channel=air), LoopGrid(make_app(), 3), rounds=2)
    alone = by_hand(Link(uplink, air, rule), 3, 2)
    torch.testing.assert_close(flat(result.arrays), alone, rtol=1e-4, atol=1e-5)
    assert alone.any()


@pytest.mark.parametrize("name", ["gamp", "baa"])
def test_what_power_control_silenced_is_said_later_under_flower_as_alone(name):
    """Over fading with inversion, devices whose gain is below the threshold send nothing and keep their message."""
    control = PowerSettings(control="inversion", threshold=0.7)
    air = make_channel(ChannelSettings(kind="fading", snr_db=30.0, snr_reference="round"), control)
    uplink = make_scheme(name, codeword_length=128)
    result = start(make_strategy(uplink, channel=air), LoopGrid(make_app(), 6), rounds=6)
    torch.testing.assert_close(flat(result.arrays), by_hand(Link(uplink, air), 6, 6), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "options"), [("gamp", {"energy": "matched"}), ("analog", {}), ("tdma-vq", {})])
def test_a_cap_holds_under_flower_as_it_does_alone(name, options):
    uplink, noisy = make_scheme(name, **options), Awgn(5.0, "transmit")
    capped, free = (
        start(make_strategy(uplink, channel=noisy, cap=cap), LoopGrid(make_app(), 3), rounds=2) for cap in (True, False)
    )
    assert capped.train_metrics_clientapp[2]["uplink.energy_max"] == pytest.approx(26, rel=1e-5)  # as many as slots
    alone = by_hand(Link(uplink, noisy, cap=True), 3, 2)
    torch.testing.assert_close(flat(capped.arrays), alone, rtol=1e-4, atol=1e-5)
    if name != "tdma-vq":  # whose devices spend the same anyway
        assert not torch.allclose(flat(free.arrays), alone, rtol=1e-2)


def test_a_lost_reply_leaves_the_whole_message_to_the_next_round():
    """The server tells of the round before; the device knows that it speaks of another message."""
    strategy, grid = make_strategy("baa"), LoopGrid(make_app(), 2)
    for server_round in (1, 2, 3):
        config = ConfigRecord({"server-round": server_round})
        replies = grid.send_and_receive(strategy.configure_train(server_round, initial_arrays(), config, grid))
        heard = [r for r in replies if server_round != 2 or r.metadata.src_node_id != 100]
        strategy.aggregate_train(server_round, heard)
    torch.testing.assert_close(said_by(0, grid.replies), update_of(2, 0) + update_of(3, 0), rtol=0, atol=1e-5)
    torch.testing.assert_close(said_by(1, grid.replies), update_of(3, 1), rtol=0, atol=1e-5)


def test_codewords_that_were_lost_count_as_not_sent():
    strategy, grid, arrived = make_strategy("perfect"), LoopGrid(make_app(), 2), torch.zeros(NUM_PARAMS)
    for server_round in (1, 2, 3):
        config = ConfigRecord({"server-round": server_round})
        replies = grid.send_and_receive(strategy.configure_train(server_round, initial_arrays(), config, grid))
        kept = grid.contexts[100].state[MEMORY]
        message, chosen = (torch.from_numpy(kept[name].numpy()) for name in ("message", "chosen"))
        wanted = sum(update_of(r, 0) for r in range(1, server_round + 1)) - arrived
        torch.testing.assert_close(message, wanted, rtol=0, atol=1e-5)
        if server_round != 2:
            arrived += chosen
        strategy.aggregate_train(
            server_round, [r for r in replies if server_round != 2 or r.metadata.src_node_id != 100]
        )


# ----------------------------------------------------------------------------------- clients that fail, leave, join


def broken(how):
    def train(arrays, device):
        if device != 1:
            return moved(arrays, update_of(1, device))
        match how:
            case "raises":
                raise RuntimeError("the disk\nis full")
            case "shape":
                return initial_arrays({"weight": (6, 19), "bias": (7,)})
            case "names":
                return initial_arrays({"weight": (6, 20)})
            case "nan":
                return ArrayRecord({n: Array(np.full(s, np.nan, np.float32)) for n, s in SHAPES.items()})

    return train


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("raises", "RuntimeError: the disk is full"),
        ("shape", r"the reply's array 'weight' has shape \(6, 19\); expected \(6, 20\)"),
        ("names", r"only in one of them: bias"),
        ("nan", "fragments"),
    ],
)
def test_a_failed_client_ends_the_run_with_its_name(as_in_production, how, sentence):
    with pytest.raises(ClientFailed, match=rf"^1 of 3 clients failed in round 1: client 1 \(node 101\) .*{sentence}"):
        start(make_strategy("gamp"), LoopGrid(make_app(train=broken(how)), 3))


@pytest.mark.parametrize("reason", ["", "<class 'OSError'>:<'\nray::Actor\n  File 1\nOSError: gone'>"])
def test_a_failure_outside_of_the_mod_is_named_too(reason):
    def fail(message, context, call_next):
        return Message(Error(ErrorCode.UNKNOWN, reason), reply_to=message)

    expected = "OSError: gone" if reason else "no reason given"
    with pytest.raises(ClientFailed, match=f"^1 of 1 clients failed in round 1: node 100: {expected}$"):
        start(make_strategy("gamp"), LoopGrid(make_app([fail, uplink_mod]), 1))


def test_a_client_without_the_mod_is_named():
    grid = LoopGrid(make_app(mods=()), 2)
    with pytest.raises(ClientFailed, match=r"node 10\d answered without aircomp's mod; .*mods=\[uplink_mod\]"):
        start(make_strategy("gamp"), grid)


@pytest.mark.parametrize(("uplink", "expected"), [("gamp", "one index below 16"), ("ideal", "127 real numbers")])
def test_a_payload_of_the_wrong_size_is_named(uplink, expected):
    def cut(message, context, call_next):
        reply = call_next(message, context)
        sent = reply.content["arrays"][SENT].numpy()
        reply.content["arrays"] = ArrayRecord({SENT: Array(sent[:-1])})
        return reply

    with pytest.raises(ClientFailed, match=rf"client 0 \(node 100\) sent .* expected {expected}"):
        start(make_strategy(uplink), LoopGrid(make_app([cut, uplink_mod]), 1))


def test_a_failure_in_evaluation_raises_too():
    with pytest.raises(ClientFailed, match=r"client 2 \(node 102\).*no test data"):
        start(make_strategy("gamp", fraction_evaluate=1.0), LoopGrid(make_app(), 3))


def test_a_client_that_leaves_is_missed_by_name_and_counted(caplog):
    grid, strategy = LoopGrid(make_app(), 3), make_strategy("ideal")
    start(strategy, grid)
    grid.gone = {101}
    with caplog.at_level(logging.WARNING, logger="aircomp"):
        result = start(strategy, grid)
    assert "round 1 goes on without client 1 (node 101), gone before the answer" in caplog.text
    metrics = result.train_metrics_clientapp[1]
    assert (metrics["uplink.num_active"], metrics["uplink.num_lost"]) == (2, 1)


def test_a_round_that_nobody_answers_raises():
    grid = LoopGrid(make_app(), 2)
    grid.gone = {100, 101}
    with pytest.raises(ClientFailed, match=r"no client answered in round 1, asked were node 10\d, node 10\d"):
        start(make_strategy("gamp"), grid)


def test_a_client_that_joins_takes_part_in_the_next_round():
    grid, strategy = LoopGrid(make_app(), 2), make_strategy("gamp")
    first = start(strategy, grid)
    grid.join(2)
    second = start(strategy, grid, arrays=first.arrays)
    assert second.train_metrics_clientapp[1]["uplink.num_active"] == 3
    assert MEMORY in grid.contexts[102].state


def test_a_round_without_selected_clients_changes_nothing():
    result = start(make_strategy("gamp", fraction_train=0.0), LoopGrid(make_app(), 2))
    assert not result.train_metrics_clientapp
    assert len(result.arrays) == 0


def test_a_model_that_changes_within_a_run_is_refused(as_in_production):
    grid = LoopGrid(make_app(train=lambda arrays, device: arrays), 2)
    start(make_strategy("perfect"), grid)
    small = initial_arrays({"weight": (2, 20)})
    strategy = UplinkStrategy(
        FedAvg(fraction_evaluate=0.0), make_scheme("perfect"), lambda r, a: moved(a, torch.ones(40))
    )
    with pytest.raises(ClientFailed, match="error memory has 127 entries, the update 40"):
        start(strategy, grid, arrays=small)


# ---------------------------------------------------------------------------------------- the example and simulate


# gamp by Flower's own engines
@pytest.mark.parametrize("uplink", ["ideal", "perfect"])
def test_the_example_and_simulate_aggregate_the_same_updates(
    example, by_simulate, assert_same_updates, uplink, monkeypatch
):
    local = example.SETTINGS.local.model_copy(update={"epochs": 1})  # as right as four, and quicker
    monkeypatch.setattr(example, "SETTINGS", example.SETTINGS.model_copy(update={"local": local}))
    example.trainer.cache_clear()  # its model is as the last test left it
    models = []
    strategy, initial = example.make_strategy(uplink), example.arrays_of(example.trainer().model.module)
    look = lambda server_round, arrays: models.append(flat(arrays))  # noqa: E731
    strategy.start(LoopGrid(example.client, 2), initial, num_rounds=2, evaluate_fn=look)
    example.trainer.cache_clear()
    updates, _ = by_simulate(uplink, rounds=2, **{"local.epochs": 1})
    assert_same_updates(models, updates)


def test_the_example_app_is_short_enough_to_copy(example):
    with open(example.__file__) as file:
        assert len(file.readlines()) < 100
