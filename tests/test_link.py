"""The public link: one round after the other, with a memory."""

import pytest
import torch

import aircomp
from aircomp import link
from aircomp.errors import ConfigError, ShapeError
from helpers.draws import seeded

NOISY = aircomp.Awgn(snr_db=5.0)


@pytest.fixture
def updates():
    common = torch.randn(2000, generator=seeded(1))
    return 0.02 * common + 0.01 * torch.randn(8, 2000, generator=seeded(2))


def test_an_ideal_link_gives_the_mean_and_delivers_everything(updates):
    sent = aircomp.Link("ideal", NOISY).send(updates)
    torch.testing.assert_close(sent.update, updates.mean(dim=0))
    assert torch.equal(sent.delivered, updates)
    assert (sent.cost.channel_uses, sent.num_active_hat) == (0, 8.0)
    assert sent.nmse < 1e-12  # float32 rounding of a mean of eight


def test_what_is_delivered_is_what_the_aggregate_is_made_of(updates):
    sent = aircomp.Link("perfect", NOISY).send(updates, base=updates.mean(dim=0))
    torch.testing.assert_close(sent.delivered.mean(dim=0), sent.update)
    # the definition, with the sums written out
    mean = updates.mean(dim=0)
    assert sent.nmse == pytest.approx(float((sent.update - mean).square().sum() / mean.square().sum()), rel=1e-5)


def test_each_send_is_another_round_and_the_seed_decides_all(updates):
    first, again = (aircomp.Link("hybrid", NOISY, seed=3) for _ in range(2))
    rounds = [first.send(updates).update for _ in range(2)]
    assert not torch.equal(*rounds)
    assert all(torch.equal(again.send(updates).update, update) for update in rounds)
    assert not torch.equal(aircomp.Link("hybrid", NOISY, seed=4).send(updates).update, rounds[0])


def test_a_link_goes_on_elsewhere_from_its_state(updates):
    sender = aircomp.Link("hybrid", NOISY)
    sender.send(updates)
    state = sender.state
    assert state["round"] == 1
    assert state["memory"].keys() == {"noise_var", "length"}
    other = aircomp.Link("hybrid", NOISY)
    other.state = state
    assert torch.equal(other.send(updates).update, sender.send(updates).update)


def test_a_round_without_the_base_stations_own_update_says_so(updates):
    told = aircomp.Link("gamp", NOISY).send(updates).cost.side_information
    assert any("the first device's message" in what for what in told)
    assert not any(
        "first device" in what
        for done in (
            aircomp.Link("gamp", NOISY).send(updates, base=updates[0]),
            aircomp.Link("reed", NOISY).send(updates),
        )
        for what in done.cost.side_information
    )


def test_fading_takes_settings_of_channel_and_power_by_name(updates):
    air = aircomp.Fading(antennas=8, snr_db=20.0, control="statistical")
    assert (air.settings.antennas, air.settings.kind, air.power.control) == (8, "fading", "statistical")
    assert aircomp.Link("blind", aircomp.Fading(antennas=8, snr_db=20.0)).send(updates).cost.channel_uses > 0


def test_updates_may_come_as_a_list_and_in_half_precision(updates):
    whole = aircomp.Link("ideal", NOISY).send(updates.bfloat16())
    assert whole.update.dtype == torch.float32
    assert torch.equal(aircomp.Link("ideal", NOISY).send(list(updates.bfloat16())).update, whole.update)


def test_a_model_tells_a_link_its_tensors():
    model = torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Linear(20, 3))  # 400, 20, 60 and 3 parameters
    layers = aircomp.Link("gamp", NOISY, tensors=model).scheme.context.slot_layers
    assert layers.tolist() == [0] * 20 + [1] + [2] * 3 + [3]
    assert torch.equal(
        layers, aircomp.Link("gamp", NOISY, tensors=[(20, 20), (20,), (60,), (3,)]).scheme.context.slot_layers
    )


@pytest.mark.parametrize("name", ["gamp", "hybrid", "ideal", "obda"])
def test_a_long_message_goes_in_parts_that_are_rounds_of_their_own(name, updates, monkeypatch):
    monkeypatch.setattr(link, "LARGEST_PART", 800)
    rule = "sign-vote" if name == "obda" else "mean"
    base, shapes = updates.mean(dim=0), [(700,), (1300,)]
    whole = aircomp.Link(name, NOISY, rule, tensors=shapes)
    first, second = whole.send(updates, base), whole.send(updates, base)
    assert (first.num_parts, first.update.shape, first.delivered.shape) == (3, (2000,), (8, 2000))
    # its first part draws what a short message draws; the energy and the uses of all parts add up
    alone = aircomp.Link(name, NOISY, rule, tensors=[(700,), (100,)]).send(updates[:, :800], base[:800])
    assert torch.equal(first.update[:800], alone.update)
    assert torch.equal(first.delivered[:, :800], alone.delivered)
    assert first.cost.channel_uses == pytest.approx(2.5 * alone.cost.channel_uses, rel=0.03)  # pilots are whole slots
    assert not torch.equal(first.update, second.update) or name == "ideal"
    again = aircomp.Link(name, NOISY, rule, tensors=shapes)
    again.state = whole.state
    assert torch.equal(again.send(updates, base).update, whole.send(updates, base).update)


def test_parts_know_the_tensors_of_their_own_parameters():
    whole = aircomp.Link("gamp", NOISY, tensors=[(700,), (1300,)])
    later = whole.part(1, slice(800, 1600))
    assert later.scheme.context.slot_layers.tolist() == [1] * 40
    assert whole.scheme.context.slot_layers.tolist() == [0] * 35 + [1] * 65


def refused(**given):
    return pytest.param(given.pop("call"), given.pop("match"), id=given.pop("id"))


@pytest.mark.parametrize(
    ("call", "match"),
    [
        refused(id="name", call=lambda u: aircomp.Link("gammp", NOISY), match="no .* 'gammp'.*did you mean 'gamp'"),
        refused(id="channel", call=lambda u: aircomp.Link("gamp", 5.0), match="channel is 5.0.*method sound"),
        refused(id="rule", call=lambda u: aircomp.Link("hybrid", NOISY, "trimmed-mean"), match="offers a mean"),
        refused(id="seed", call=lambda u: aircomp.Link("gamp", NOISY, seed=-1), match="seed is -1"),
        refused(id="phase", call=lambda u: aircomp.Link("gamp", aircomp.Fading()), match="arrive in phase"),
        refused(id="snr", call=lambda u: aircomp.Awgn("loud"), match="snr_db is the str 'loud'"),
        refused(id="reference", call=lambda u: aircomp.Awgn(5.0, "rond"), match="did you mean 'round'"),
        refused(id="vector", call=lambda u: aircomp.Link("gamp", NOISY).send(u[0]), match=r"updates is .*\[2000\]"),
        refused(id="nobody", call=lambda u: aircomp.Link("gamp", NOISY).send(u[:0]), match="at least one device"),
        refused(id="nan", call=lambda u: aircomp.Link("gamp", NOISY).send(u * torch.nan), match="not finite"),
        refused(id="ragged", call=lambda u: aircomp.Link("gamp", NOISY).send([u[0], u[1, :9]]), match="one length"),
        refused(id="base", call=lambda u: aircomp.Link("gamp", NOISY).send(u, base=u[0, :9]), match="9 parameters"),
        refused(
            id="state",
            call=lambda u: setattr(aircomp.Link("gamp", NOISY), "state", {"round": 1}),
            match="expected what another link's state was",
        ),
    ],
)
@pytest.mark.usefixtures("as_in_production")
def test_what_a_link_cannot_use_is_one_sentence(call, match, updates):
    with pytest.raises((ConfigError, ShapeError), match=match) as caught:
        call(updates)
    assert "\n" not in str(caught.value)
