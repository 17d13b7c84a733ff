"""The networks of an analog code: exact without noise, the Gaussian posterior mean with it, and their files."""

import json

import pytest
import torch

from aircomp.common.tensors import read_tensors, tensor_hash, write_tensors
from aircomp.decoders.analog_code import Heard
from aircomp.encode.settings import AnalogCodeSettings
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.analog_code import AnalogCode, AnalogNetworks
from aircomp.layer.communication import CommunicationLayer


@pytest.fixture
def saved(tmp_path):
    AnalogCode(AnalogNetworks(AnalogCodeSettings(width=8), 4, 8)).save(tmp_path)
    return tmp_path


def heard(received, noise_var, num_active=3.0, fragment=4):
    slots = len(received)
    own = torch.randn(slots, fragment, generator=torch.Generator().manual_seed(1))
    return Heard(received, torch.full((slots,), noise_var), torch.full((slots,), num_active), own, torch.zeros(slots))


def random_networks(form="systematic"):
    networks = AnalogNetworks(AnalogCodeSettings(form=form, width=8), 4, 8)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in networks.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng))
    return networks


def test_without_noise_the_sum_is_exact_whatever_the_weights(rng):
    networks, fragments = random_networks(), torch.randn(3, 50, 4, generator=rng)
    received = networks.encoder(fragments, torch.zeros(50)).sum(0)
    found = networks.estimator(heard(received, 0.0))
    torch.testing.assert_close(found, fragments.sum(0), rtol=1e-4, atol=1e-4)
    free = random_networks("free")
    assert not torch.allclose(free.estimator(heard(received, 0.0)), fragments.sum(0), rtol=0.1)


def test_an_untrained_estimate_is_the_posterior_mean_of_gaussian_fragments(rng):
    """Three devices with energy one over four parameters: a variance of 3/4 in the sum, behind noise of 1/4."""
    received = torch.randn(50, 8, generator=rng)
    found = AnalogNetworks(AnalogCodeSettings(width=8), 4, 8).estimator(heard(received, 0.25))
    torch.testing.assert_close(found, 0.75 * received[:, :4])


def test_networks_stay_finite_far_off_their_range(rng):
    networks = random_networks()
    for scale in (0.0, 1e-12, 1e6):
        for noise_var in (0.0, 1e-12, 1e6):
            assert networks.estimator(heard(scale * torch.randn(20, 8, generator=rng), noise_var)).isfinite().all()


def test_a_saved_code_comes_back(saved):
    code = AnalogCode.load(saved)
    networks = AnalogNetworks(AnalogCodeSettings(width=8), 4, 8)
    for name, weight in networks.state_dict().items():
        assert torch.equal(code.networks.state_dict()[name], weight), name
    assert not any(parameter.requires_grad for parameter in code.networks.parameters())


def test_the_bundled_code_has_the_papers_size_and_says_how_it_was_made():
    code = AnalogCode.load()
    assert (code.networks.fragment_length, code.networks.uses, code.networks.settings.form) == (20, 64, "systematic")
    assert code.training["rounds"]["test"]


def test_layers_of_the_other_kind_are_refused(saved):
    with pytest.raises(ArtefactError, match="does not describe a communication layer"):
        CommunicationLayer.load(saved)
    description = json.loads((saved / "layer.json").read_text())
    del description["config"]["code"]
    (saved / "layer.json").write_text(json.dumps(description))
    with pytest.raises(
        ArtefactError, match="does not describe an analog code; give a directory made by aircomp pretrain"
    ):
        AnalogCode.load(saved)


def claim(directory, **config):
    description = json.loads((directory / "layer.json").read_text())
    description["config"] |= config
    (directory / "layer.json").write_text(json.dumps(description))


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"code": {"form": "other"}}, "config.code"),
        ({"code": {"width": 4096}}, "describes larger networks than layer.safetensors holds"),
        ({"code": {"width": 7}}, "expected float32"),
        ({"codeword_length": 4}, "claims 4 parameters in 4 uses"),
        ({"codeword_length": 2**40}, "expected fewer parameters than uses, and at most"),
        ({"fragment_length": "4"}, "claims 4 parameters in 8 uses"),
        ({"codeword_length": 9}, "expected float32"),
    ],
)
def test_what_a_description_claims_is_compared_with_the_weights(saved, config, sentence):
    claim(saved, **config)
    with pytest.raises(ArtefactError, match=sentence):
        AnalogCode.load(saved)


def test_weights_that_are_not_those_described_are_refused(saved):
    tensors, _ = read_tensors(saved / "layer.safetensors")
    write_tensors(saved / "layer.safetensors", {**tensors, "encoder.loudness": torch.tensor(1.0)})
    with pytest.raises(ArtefactError, match=r"does not hold the weights that layer.json describes"):
        AnalogCode.load(saved)
    tensors["more"] = torch.zeros(1)
    write_tensors(saved / "layer.safetensors", tensors)
    description = json.loads((saved / "layer.json").read_text())
    description["weights_hash"] = tensor_hash(*(tensors[name] for name in sorted(tensors)))
    (saved / "layer.json").write_text(json.dumps(description))
    with pytest.raises(ArtefactError, match="holds more than the networks"):
        AnalogCode.load(saved)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(ArtefactError, match=r"layer.json does not exist; check the path"):
        AnalogCode.load(tmp_path)


def test_a_systematic_code_needs_room_for_the_parameters():
    with pytest.raises(ConfigError, match="needs more uses than the 8 parameters"):
        AnalogNetworks(AnalogCodeSettings(), 8, 8)


def test_networks_of_each_device_with_equal_weights_are_the_shared_one():
    shared = AnalogNetworks(AnalogCodeSettings(form="free", width=8), 4, 8, seed=1)
    own = AnalogNetworks(AnalogCodeSettings(form="free", width=8, devices=3), 4, 8, seed=2)
    with torch.no_grad():
        for one, each in zip(shared.encoder.network[::2], own.encoder.network[::2], strict=True):
            each.weight.zero_()  # what is seen of the channel has no weight
            each.weight[:, : one.in_features] = one.weight.T
            each.bias[:] = one.bias
    rng = torch.Generator().manual_seed(0)
    fragments, energy = torch.randn(3, 5, 4, generator=rng), torch.randn(5, generator=rng)
    expected = shared.encoder(fragments, energy)
    for devices in (1, 3):
        snr = torch.rand(devices, 1, generator=rng)
        found = own.encoder(fragments[:devices], energy, snr)
        torch.testing.assert_close(found, expected[:devices])


def test_networks_of_each_device_differ_and_see_their_channel():
    own = AnalogNetworks(AnalogCodeSettings(form="free", width=8, devices=3), 4, 8).requires_grad_(False)
    same, energy = torch.ones(3, 2, 4), torch.zeros(2)
    weak, strong = (own.encoder(same, energy, torch.full((3, 1), snr)) for snr in (0.1, 10.0))
    assert float((weak[0] - weak[1]).abs().max()) > 1e-2
    assert float((weak - strong).abs().amax((1, 2)).min()) > 1e-3


def test_networks_of_each_device_have_no_systematic_form():
    with pytest.raises(ConfigError, match="devices = 3 is for form = 'free', but form = 'systematic' was given"):
        AnalogCodeSettings.parse({"form": "systematic", "devices": 3})
