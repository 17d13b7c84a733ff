"""What attackers do to a round beside what their messages say: scales, amplifiers, noise on the air, lies."""

import pytest
import torch

import aircomp
from aircomp.channel.awgn import Awgn
from aircomp.channel.base import Attack
from aircomp.device.settings import CorruptionSettings
from aircomp.errors import ConfigError
from aircomp.link import Link, diagnose
from aircomp.schemes.attack import attack_of
from aircomp.schemes.meter import TOLERANCE, check_power, record_of
from aircomp.schemes.outputs import Vote
from aircomp.schemes.registry import scheme_class
from helpers.schemes import needs_phase, sized

DEVICES, PARAMS, UNIT = 10, 6000, 64 * 300
"""Slots of 20 parameters and 64 uses, of energy one a slot."""
BAD = torch.arange(DEVICES) < 2
AGREEING = [
    name
    for name in aircomp.uplink_names()
    if any("scale" in told for told in scheme_class(name).side_information) and needs_phase(name)
]
"""Schemes whose devices agree on a scale."""


def messages(seed=0):
    return torch.randn(DEVICES, PARAMS, generator=torch.Generator().manual_seed(seed))


def sent(name, given, attack, *, snr_db=10.0, cap=False, rounds=1):
    rule = "sign-vote" if scheme_class(name).offers is Vote else "mean"
    link, own = Link(sized(name), Awgn(snr_db, "transmit"), rule, cap=cap), messages().mean(dim=0)
    for _ in range(rounds):
        done = link.send(given, own, attack)
    return done


@pytest.mark.parametrize("name", AGREEING)
@pytest.mark.parametrize("rounds", [1, 2])  # some schemes begin to agree in their second round
def test_the_agreed_scale_does_not_change_when_attackers_grow(name, rounds):
    given = messages()
    grown = torch.where(BAD[:, None], 50 * given, given)
    one, other = (sent(name, each, Attack(BAD), rounds=rounds).sent.agreed for each in (given, grown))
    assert one
    assert one.keys() == other.keys()
    for key in one:
        assert torch.equal(one[key], other[key])
    without = sent(name, given, None, rounds=rounds).sent.agreed  # where nobody attacks, all agree
    alike = all(torch.equal(one[key], without[key]) for key in one)
    # cotaf: the longest of all is honest; complement-coded: signs have one energy, whatever they say
    assert alike == (name in ("cotaf", "complement-coded"))


@pytest.mark.parametrize("name", [*AGREEING, "a-dsgd", "gamp", "tdma-vq", "fsk-mv"])
@pytest.mark.parametrize("cap", [False, True])
def test_amplifiers_hold_attackers_to_the_nominal_energy(name, cap):
    given = messages()
    done = sent(name, torch.where(BAD[:, None], 50 * given, given), Attack(BAD), cap=cap)
    nominal = done.sent.signal.power * done.broadcast.num_uses
    assert float(done.air.energy[BAD].max()) <= (1 + TOLERANCE) * nominal
    check_power([record_of(done.air)])


def test_an_attacker_at_the_limit_adds_its_energy_alone_to_the_mean():
    """Noise of the energy of an update stands in the place of two of ten unrelated updates."""
    given = messages()
    noise = torch.where(BAD[:, None], 50 * messages(1), given)
    found = sent("baa", noise, Attack(BAD), snr_db=60.0).update
    honest = given[~BAD].sum(dim=0)
    # pilots tell 8 devices and two fiftieths; 2/8 of the energy of the honest sum comes from attackers
    error = (found * (8 + 2 / 50) - honest).square().sum() / honest.square().sum()
    assert float(error) == pytest.approx(2 / 8, rel=0.1)  # both are sums over 6,000 parameters: 2 % each


def test_jammers_add_the_energy_of_their_share_to_the_noise():
    """Noise of a use grows from K/Γ to K/Γ + qK, at energy one a use and the share q."""
    given = torch.zeros(DEVICES, PARAMS)
    given[:, 0] = 1.0
    plain, jammed = (sent("baa", given, attack) for attack in (None, Attack(BAD, jams=True)))
    heard = [each.output.mean[1:].square().mean().item() for each in (plain, jammed)]
    # the sums are divided by ten devices, and by the eight whose pilots are not noise
    assert heard[1] / heard[0] == pytest.approx((0.1 + 0.2) / 0.1 * (10 / 8) ** 2, rel=0.1)
    assert jammed.output.num_active_hat == pytest.approx(8, abs=0.2)


def test_a_lie_makes_everybody_quieter_as_if_the_liar_were_so_long():
    given = messages()
    lie = attack_of(BAD, CorruptionSettings(kind="lie", factor=10.0))
    told, true = (float(sent("baa", given, attack).sent.agreed["scale"]) for attack in (lie, None))
    # of the mean energy 1 − q + q a², whatever the two are long
    energies = given.square().sum(dim=1)
    assert true / told == pytest.approx(
        float((energies[~BAD].sum() + 100 * energies[BAD].sum()) / energies.sum()), rel=1e-4
    )


def test_a_lie_about_a_scale_leaves_schemes_without_one_alone():
    given = messages()
    lie = Attack(BAD, report=10.0)
    for name in ("a-dsgd", "gamp", "tdma-coded"):
        assert torch.equal(sent(name, given, lie).update, sent(name, given, None).update)


@pytest.mark.parametrize("name", [*AGREEING, "a-dsgd", "gamp", "tdma-coded"])
def test_a_round_with_a_liar_is_metered_by_what_is_spent(name):
    done = sent(name, messages(), Attack(BAD, report=10.0))
    check_power([record_of(done.air)])  # the least that a comparison asks
    assert float(done.air.energy.mean()) > 0


@pytest.mark.parametrize("name", [*AGREEING, "a-dsgd", "gamp", "fsk-mv"])
def test_a_jammed_round_is_diagnosed_as_any_other(name):
    link = Link(sized(name), Awgn(10.0, "transmit"), "sign-vote" if scheme_class(name).offers is Vote else "mean")
    given = messages()
    quiet, jammed = (link.send(given, given.mean(dim=0), attack) for attack in (None, Attack(BAD, jams=True)))
    assert diagnose(link, jammed).keys() == diagnose(link, quiet).keys()


def test_a_scheme_without_a_signal_cannot_be_jammed():
    with pytest.raises(ConfigError, match="no signal that could be jammed"):
        sent("tdma-vq", messages(), Attack(BAD, jams=True))


@pytest.mark.parametrize("kind", ["none", "silent"])
def test_who_sends_nothing_false_does_not_attack(kind):
    assert attack_of(BAD, CorruptionSettings(kind=kind)) is None


def test_where_nobody_is_honest_all_agree():
    done = sent("baa", messages(), Attack(torch.ones(DEVICES, dtype=torch.bool)))
    assert float(done.sent.agreed["scale"]) > 0
