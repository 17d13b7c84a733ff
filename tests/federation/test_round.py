import pytest
import torch

from aircomp.errors import ConfigError
from aircomp.federation.simulate import simulate
from aircomp.schemes.base import Scheme


def run(experiment, digits, **kwargs):
    return simulate(experiment, dataset=digits, **kwargs)


class Spy(Scheme):
    """Wraps an uplink and keeps what passes through it."""

    def __init__(self, uplink):
        self.scheme, self.name, self.offers, self.uses_radio = uplink, uplink.name, uplink.offers, uplink.uses_radio
        self.estimates_num_active, self.side_information = uplink.estimates_num_active, uplink.side_information
        self.messages, self.receptions, self.base = [], [], []

    def broadcast(self, base_update, memory, *, rng):
        self.base.append(base_update.clone())
        return self.scheme.broadcast(base_update, memory, rng=rng)

    def encode(self, messages, broadcast, csi, *, rng):
        self.messages.append(messages.clone())
        return self.scheme.encode(messages, broadcast, csi, rng=rng)

    def decode(self, received, broadcast, private, csi):
        output, memory = self.scheme.decode(received, broadcast, private, csi)
        self.receptions.append(output)
        return output, memory

    def diagnose(self, sent, broadcast, output):
        return self.scheme.diagnose(sent, broadcast, output)


def ideal(**options):
    from aircomp.schemes.base import SchemeContext
    from aircomp.schemes.ideal import Ideal

    return Spy(Ideal(context=SchemeContext(**options)))


def step_taken(result, start):
    return result.state.weights - start.state.weights


def test_the_ideal_uplink_moves_the_model_by_the_mean_update(quick, digits):
    spy = ideal()
    start = run(quick.changed(rounds=0), digits)
    result = run(quick.changed(rounds=1), digits, uplink=spy)
    # weights + mean - weights: rounding of float32 weights of order one
    torch.testing.assert_close(step_taken(result, start), spy.messages[0].mean(dim=0), rtol=0, atol=1e-6)


def test_the_base_station_counts_as_one_more_message(quick, digits):
    spy = ideal(include_base_station=True)
    start = run(quick.changed(rounds=0), digits)
    result = run(quick.changed(rounds=1), digits, uplink=spy)
    expected = torch.cat([spy.messages[0], spy.base[0][None]]).mean(dim=0)
    torch.testing.assert_close(step_taken(result, start), expected, rtol=0, atol=1e-6)


def test_the_first_active_devices_message_stands_for_the_base_stations_update(quick, digits):
    spy = ideal()
    first = quick.changed(**{"server.base": "first-device", "rounds": 2})
    result = run(first, digits, uplink=spy)
    for base, messages in zip(spy.base, spy.messages, strict=True):
        assert torch.equal(base, messages[0])
    assert len(result.partition.base_station) == 0
    own = run(quick, digits)
    assert len(result.partition.devices[0]) > len(own.partition.devices[0]), (
        "devices hold the base station's images too"
    )
    beside = "the first device's message, in place of an update of the base station's own"
    assert (beside in result.row["side_information"], beside in own.row["side_information"]) == (True, False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"server.include_base_station": True}, "the base station has no update; turn one off"),
        (
            {"buffers": "recomputed"},
            "takes images of the base station, but with server.base = 'first-device' it has none",
        ),
        ({"partition.base_station_samples": 5}, "partition.base_station_samples"),
    ],
)
def test_a_base_station_without_data_does_nothing_with_its_data(quick, digits, settings, message):
    with pytest.raises(ConfigError, match=message):
        run(quick, digits, **{"server.base": "first-device"}, **settings)


def test_every_round_says_what_quantising_lost(quick, digits):
    exact = run(quick.changed(rounds=1), digits).metrics[0]
    quantised = run(quick.changed(rounds=1, uplink="perfect"), digits).metrics[0]
    assert exact["quantization_nmse"] == 0.0
    assert 0.0 < quantised["quantization_nmse"] < 1.0


def test_a_round_without_devices_changes_nothing(quick, digits):
    none = {"participation.kind": "fixed", "participation.number": 0, "rounds": 2}
    result = run(quick.changed(**none), digits)
    start = run(quick.changed(rounds=0), digits)
    assert torch.equal(result.state.weights, start.state.weights)
    assert [r["num_active"] for r in result.metrics] == [0, 0]


def test_silent_devices_keep_their_message(quick, digits):
    spy = ideal()
    settings = {"corruption.kind": "silent", "corruption.fraction": 0.5, "rounds": 1}
    settings |= {"participation.kind": "fixed", "participation.number": 4}
    result = run(quick.changed(**settings), digits, uplink=spy)
    assert len(spy.messages[0]) == 2
    assert result.metrics[0]["num_active"] == 2
    kept = [memory for memory in result.state.memories.values() if memory.norm() > 0]
    assert len(kept) == 2


def test_all_devices_silent_changes_only_memories(quick, digits):
    result = run(quick.changed(**{"corruption.kind": "silent", "corruption.fraction": 1.0, "rounds": 1}), digits)
    start = run(quick.changed(rounds=0), digits)
    assert torch.equal(result.state.weights, start.state.weights)
    assert len(result.state.memories) >= 2


def test_error_memory_exists_only_for_devices_that_took_part(quick, digits):
    result = run(quick.changed(**{"participation.kind": "fixed", "participation.number": 2, "rounds": 1}), digits)
    assert len(result.state.memories) == 2
    off = run(quick.changed(**{"feedback.kind": "off", "rounds": 1}), digits)
    assert off.state.memories == {}


def test_corrupted_noise_keeps_the_norm_of_what_it_replaces(quick, digits):
    honest, noisy = ideal(), ideal()
    run(quick.changed(rounds=1), digits, uplink=honest)
    settings = {"corruption.kind": "noise", "corruption.fraction": 1.0, "rounds": 1}
    run(quick.changed(**settings), digits, uplink=noisy)
    # the norm of normalised noise times a norm: float32 rounding
    torch.testing.assert_close(noisy.messages[0].norm(dim=1), honest.messages[0].norm(dim=1), rtol=1e-5, atol=0)
    assert not torch.allclose(noisy.messages[0], honest.messages[0])


def test_functions_before_and_after_the_uplink_compose(quick, digits):
    plain = run(quick, digits)
    scaled = run(quick, digits, before=lambda u: 4 * u, after=lambda u: u / 4)
    assert torch.equal(plain.state.weights, scaled.state.weights)  # powers of two scale exactly


def with_batch_norm():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(144, 10)
    )


@pytest.mark.parametrize("policy", ["average", "local", "recomputed", "estimated"])
def test_batch_norm_buffers_follow_the_declared_policy(quick, digits, policy):
    result = run(quick.changed(buffers=policy, rounds=2, uplink="amp-da"), digits, model=with_batch_norm())
    declared = [what for what in result.row["side_information"] if "BatchNorm" in what]
    assert bool(declared) == (policy in ("average", "estimated"))
    assert all(("estimated" in what) == (policy == "estimated") for what in declared)
    assert result.row["buffers"] == policy
    assert bool(result.state.local_buffers) == (policy == "local")


def test_estimated_buffers_are_the_sum_over_the_rounded_estimate(quick, digits):
    exchanges = []
    settings = {"buffers": "estimated", "rounds": 1, "uplink": "amp-da", "channel.snr_db": -10.0}
    result = run(quick.changed(**settings), digits, model=with_batch_norm(), on_round=lambda _, e: exchanges.append(e))
    number = max(1, round(exchanges[0].exchange.output.num_active_hat))
    assert number != result.metrics[0]["num_active"]  # or it would be the average
    assert torch.equal(result.state.buffers, exchanges[0].buffers.sum(dim=0) / number)


@pytest.mark.parametrize("policy", ["average", "estimated"])
def test_buffers_of_silent_devices_stay_with_them(quick, digits, policy):
    rounds = []
    settings = {
        "buffers": policy,
        "rounds": 1,
        "uplink": "gamp",
        "corruption.kind": "silent",
        "corruption.fraction": 0.5,
    }
    result = run(quick.changed(**settings), digits, model=with_batch_norm(), on_round=lambda _, e: rounds.append(e))
    buffers, after, number = rounds[0].buffers, result.state.buffers, len(rounds[0].exchange.messages)
    assert number < len(buffers)
    factor = number / max(1, round(rounds[0].exchange.output.num_active_hat)) if policy == "estimated" else 1.0
    # the mean over those that spoke lies between the least and the largest of all
    assert (after / factor >= buffers.min(0).values - 1e-6).all()
    assert (after / factor <= buffers.max(0).values + 1e-6).all()
    assert not torch.allclose(after / factor, buffers.mean(0))


@pytest.mark.parametrize("uplink", ["ideal", "perfect"])
def test_estimated_buffers_need_an_estimate(quick, digits, uplink):
    with pytest.raises(ConfigError, match=f"uplink = '{uplink}' estimates nothing"):
        run(quick.changed(buffers="estimated", uplink=uplink), digits)


def test_devices_keep_the_slots_that_were_not_asked_for(quick, digits):
    exchanges = []
    settings = {"rounds": 1, "uplink": "gamp", "channel.snr_db": 40.0, "uplink.repeat": 4}
    result = run(quick.changed(**settings), digits, on_round=lambda _, e: exchanges.append(e.exchange))
    asked, sent = exchanges[0].broadcast.values, exchanges[0].messages
    slots = torch.arange(sent.shape[1]) // asked["codebook"].shape[1]
    kept = ~torch.isin(slots, asked["asked"])
    memories = torch.stack(list(result.state.memories.values()))
    assert 0.7 < kept.float().mean() < 0.8  # three quarters of the slots
    assert torch.equal(memories[:, kept], sent[:, kept])
    assert not torch.equal(memories[:, ~kept], sent[:, ~kept])


def test_the_model_moves_only_in_the_slots_that_were_asked_for(quick, digits):
    exchanges = []
    settings = {"uplink": "gamp", "uplink.repeat": 2, "snr_db": -5.0}
    start = run(quick.changed(rounds=0), digits)
    result = run(quick.changed(rounds=1), digits, on_round=lambda _, e: exchanges.append(e), **settings)
    asked = exchanges[0].exchange.broadcast.values
    slots = torch.arange(len(start.state.weights)) // asked["codebook"].shape[1]
    moved = step_taken(result, start) != 0
    assert not moved[~torch.isin(slots, asked["asked"])].any()
    assert moved.any()


@pytest.mark.seconds
def test_the_air_follows_the_snr_estimated_in_the_round_before(quick, digits):
    settings = {"uplink": "gamp", "uplink.repeat": "auto"}
    noisy = run(quick, digits, snr_db=-15.0, **settings)
    assert noisy.metrics[0]["repeat"] == 1
    assert all(record["repeat"] > 1 for record in noisy.metrics[1:])
    clean = run(quick, digits, snr_db=20.0, **settings)
    assert all(record["repeat"] == 1 for record in clean.metrics)
    assert clean.state.uplink_memory["snr_db"] > 10 > noisy.state.uplink_memory["snr_db"]


def test_uplinks_without_a_memory_remember_nothing(quick, digits):
    assert run(quick.changed(rounds=2), digits, uplink=ideal()).state.uplink_memory == {}


@pytest.mark.seconds
def test_a_readout_reaches_the_server_step(quick, digits):
    weights = [
        run(quick.changed(rounds=1), digits, uplink="gamp", snr_db=0.0, **{"aggregate.readout": readout}).state.weights
        for readout in ("integers", "soft", "norm", "unbiased")
    ]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])


@pytest.mark.parametrize("rule", ["majority-vote", lambda counts, codewords: counts.float() @ codewords])
def test_a_readout_that_the_rule_cannot_use_is_refused_before_the_first_round(quick, digits, rule):
    with pytest.raises(ConfigError, match="is for the mean, not for"):
        run(quick.changed(rounds=0), digits, uplink="gamp", aggregator=rule, **{"aggregate.readout": "soft"})
