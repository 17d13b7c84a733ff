"""Nomographic networks: what each side sees, functions that training finds, and who is refused."""

import importlib.util
from pathlib import Path

import pytest
import torch

import aircomp
from aircomp.channel.awgn import Awgn
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.nomographic import FUNCTIONS, NomographicCode, NomographicNetworks, NomographicSettings
from aircomp.link import Link, communicate
from aircomp.schemes.nomographic import Nomographic
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import NomographicUplinkSettings

SCRIPT = Path(__file__).parents[2] / "tools" / "train_nomographic.py"
SETTINGS = NomographicUplinkSettings(name="nomographic")
SMALL = NomographicSettings(width=16, receiver_width=32)


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("train_nomographic", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exchange(scheme, *, number=10, params=4000, snr_db=20.0):
    rng = torch.Generator().manual_seed(0)
    given = torch.randn(1, params, generator=rng) + torch.randn(number + 1, params, generator=rng)
    return communicate(Link(scheme, Awgn(snr_db, "transmit")), given[0], given[1:], {}, 0)


def test_every_use_has_the_nominal_energy_whatever_is_sent():
    done = exchange(make_scheme(SETTINGS))
    torch.testing.assert_close(done.air.energy, torch.full((10,), 200.0, dtype=torch.float64), rtol=1e-5, atol=0)
    assert done.air.agreed_bits == 0
    assert done.output.num_active_hat is None


@pytest.mark.parametrize("snr_db", [10.0, 20.0])
def test_the_bundled_networks_find_the_mean(snr_db):
    done = exchange(make_scheme(SETTINGS), snr_db=snr_db)
    truth = done.sent.reconstruction.mean(dim=0)
    wrong = float((done.update - truth).square().sum() / truth.square().sum())
    assert wrong < 0.1  # one: nothing arrived


def test_an_snr_above_that_of_training_does_no_harm_and_one_below_gives_no_more_than_a_number():
    wrong = {}
    for snr_db in (30.0, float("inf"), -40.0):
        done = exchange(make_scheme(SETTINGS), snr_db=snr_db)
        truth = done.sent.reconstruction.mean(dim=0)
        wrong[snr_db] = float((done.update - truth).square().sum() / truth.square().sum())
        limits = 2.5 * float(done.private.square().mean().sqrt())
        assert float(done.update.abs().max()) <= limits * 1.001
    assert wrong[float("inf")] < 3 * wrong[30.0]  # 21 times as much if told of an SNR that no training had


def test_a_device_knows_its_own_numbers_and_channel_alone():
    networks = NomographicNetworks(NomographicSettings(devices=3, fewest=3), seed=1)
    numbers, snr = torch.rand(3, 5, 1), torch.ones(3, 1)
    sent = networks.send(numbers, snr)
    torch.testing.assert_close(sent.norm(dim=2), torch.ones(3, 5))
    other = networks.send(torch.cat([numbers[:1], 1 - numbers[1:]]), torch.cat([snr[:1], 9 * snr[1:]]))
    assert torch.equal(other[0], sent[0])
    assert not torch.allclose(other[1:], sent[1:])
    assert not torch.allclose(networks.send(numbers, 9 * snr)[0], sent[0])


def test_networks_of_each_device_with_equal_weights_are_the_shared_one():
    form = {"inputs": 20, "uses": 64, "width": 8, "receiver_width": 8}
    shared = NomographicNetworks(NomographicSettings(shared=True, **form), seed=0)
    own = NomographicNetworks(NomographicSettings(devices=2, **form), seed=1)
    for to, source in zip(own.device.parameters(), shared.device.parameters(), strict=True):
        to.data = source.data.expand_as(to).clone()
    numbers = torch.rand(2, 7, 20)
    torch.testing.assert_close(own.send(numbers, torch.ones(2, 1)), shared.send(numbers, torch.ones(2, 1)))
    scheme = Nomographic(SETTINGS, code=NomographicCode(shared.requires_grad_(False)))
    assert scheme.most_devices is None
    assert exchange(scheme, number=40, params=400).update.isfinite().all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_two_devices_are_what_their_names_say(name):
    x, active = torch.tensor([[[0.5]], [[-0.25]], [[0.9]]]), torch.tensor([[[1.0]], [[1.0]], [[0.0]]])
    expected = {"mean": 0.125, "product": -0.125, "norm": (0.25 + 0.0625) ** 0.5, "maximum": 0.5}[name]
    assert float(FUNCTIONS[name](x, active)) == pytest.approx(expected)


@pytest.mark.seconds
@pytest.mark.parametrize("name", ["mean", "product"])
def test_training_finds_functions_that_a_sum_alone_is_not(name, tool):
    code = tool.train(SMALL.changed(function=name), 400, batch=128)
    wrong, variance = tool.error(code, 20.0, batch=4000)
    assert (
        wrong < (0.1 if name == "mean" else 0.6) * variance
    )  # a linear function of the sum explains none of a product


def test_saved_networks_are_read_again_and_damaged_ones_are_not(tmp_path):
    code = NomographicCode(NomographicNetworks(SMALL))
    code.save(tmp_path)
    again = NomographicCode.load(tmp_path).networks.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in code.networks.state_dict().items())
    (tmp_path / "layer.safetensors").write_bytes(b"{}")
    with pytest.raises(ArtefactError):
        NomographicCode.load(tmp_path)


def test_networks_for_another_number_of_devices_or_function_are_refused_before_training():
    with pytest.raises(ConfigError, match=r"14 devices may send at once, but .*'nomographic' is for 13 at most; train"):
        exchange(make_scheme(SETTINGS), number=14)
    few = {"participation.low": 2, "uplink": "nomographic", "rounds": 1}
    with pytest.raises(
        ConfigError, match="only 2 devices may send at once, but uplink = 'nomographic' is for 7 at least"
    ):
        aircomp.simulate("digits", **few)
    with pytest.raises(ConfigError, match="has networks for the norm, but an update is a mean"):
        Nomographic(SETTINGS, code=NomographicCode(NomographicNetworks(SMALL.changed(function="norm"))))
