"""The exported decoder does what the network does, and layers go through huggingface_hub's mixin."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import config

from aircomp.cli.export import run
from aircomp.decoders.estimate.pilot import PilotEstimator
from aircomp.decoders.rounding import conclude
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer import communication
from aircomp.layer.communication import CommunicationLayer
from aircomp.layer.export import INPUTS, OUTPUTS, StaticNet, export_layer
from helpers.layers import LENGTH, NUM_CODEWORDS, make_layer

pytestmark = pytest.mark.seconds
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "export.md"


def ajar_layer(**settings):
    """Return a layer with every gate ajar and every correction at work."""
    return make_layer(change=0.3, **settings)


def signal(layer, num_slots, noise_var=0.09):
    rng = torch.Generator().manual_seed(num_slots)
    # of twelve devices: of fewer, ours would sum fewer counts than their posteriors have
    rate = 12 * torch.softmax(0.3 * torch.randn(NUM_CODEWORDS, generator=rng), 0)
    counts = torch.poisson(rate.expand(num_slots, -1), generator=rng)
    received = counts @ layer.codebook + noise_var**0.5 * torch.randn(num_slots, LENGTH, generator=rng)
    return received, rate, noise_var * (0.5 + torch.rand(num_slots, generator=rng))


def ours(layer, received, rate, noise_var):
    out = layer.net.unroll(received, layer.codebook, rate, noise_var)
    return out.mean, out.num_active_hat, out.noise_var


def assert_all_close(theirs, expected, atol):
    for name, a, b in zip(OUTPUTS, theirs, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(a), b, atol=atol, rtol=0, msg=lambda m, name=name: f"{name}: {m}")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a layer and the directory that its decoder was exported to in both formats by the command."""
    directory, layer = tmp_path_factory.mktemp("exported"), ajar_layer()
    layer.save(directory / "layer")
    config.update(
        "jaxtyping_disable", True
    )  # the checks of the test run would see a tracer's symbols instead of numbers
    try:
        for name, kind in (("decoder.onnx", "onnx"), ("decoder.pt2", "torch")):
            run([str(directory / "layer"), "--format", kind, "--out", str(directory / name)])
    finally:
        config.update("jaxtyping_disable", False)
    return layer, directory


# float32 in another order of summation, passed through every layer; the interface promises 1e-4
TOLERANCE = 1e-4


def test_onnxruntime_decodes_as_we_do_for_any_number_of_slots(exported):
    onnxruntime = pytest.importorskip("onnxruntime")
    layer, directory = exported
    session = onnxruntime.InferenceSession(directory / "decoder.onnx", providers=["CPUExecutionProvider"])
    assert [(i.name, i.shape) for i in session.get_inputs()] == [
        ("received", ["slots", LENGTH]),
        ("rate", [NUM_CODEWORDS]),
        ("noise_var", ["slots"]),
    ]
    assert tuple(o.name for o in session.get_outputs()) == OUTPUTS
    for num_slots in (1, 7, 300):
        given = signal(layer, num_slots)
        found = session.run(None, {name: value.numpy() for name, value in zip(INPUTS, given, strict=True)})
        assert_all_close(found, ours(layer, *given), TOLERANCE)


def test_a_program_of_torch_export_decodes_as_we_do_for_any_number_of_slots(exported):
    layer, directory = exported
    program = torch.export.load(directory / "decoder.pt2").module()
    for num_slots in (1, 7, 300):
        given = signal(layer, num_slots)
        assert_all_close(program(*given), ours(layer, *given), TOLERANCE)


@pytest.mark.parametrize("settings", [{}, {"num_layers": 1, "filters": 1}, {"num_layers": 6, "kernel": 5}])
def test_every_kind_of_network_has_its_static_form(settings):
    layer = ajar_layer(**settings)
    given = signal(layer, 40)
    # the same operations, nearly in the same order
    assert_all_close(StaticNet(layer)(*given), ours(layer, *given), 1e-5)


def test_the_reach_is_what_was_asked_for():
    layer = ajar_layer()
    received, rate, noise_var = signal(layer, 40, noise_var=2.0)
    expected = ours(layer, received, rate, noise_var)
    # ours ends its table at the number of devices, here 4: in so much noise that is 0.02 of a count
    assert_all_close(StaticNet(layer, max_variance=8.0)(received, rate, noise_var), expected, 0.03)
    narrow = StaticNet(layer, max_variance=0.01)(received, rate, noise_var)
    assert (narrow[0] - expected[0]).abs().max() > 0.1, "counts further from the mode are left out"
    with pytest.raises(ConfigError, match="at least one device"):
        StaticNet(layer, max_devices=0)


def test_estimates_before_and_rounding_after_make_it_the_decoder():
    layer = ajar_layer(agreement=0.03)
    received, rate, _ = signal(layer, 60)
    popularity = rate / rate.sum()
    shared, noise_var = PilotEstimator(layer.codebook, agreement=0.03).estimate(received, popularity, 12)
    mean, _, noise = StaticNet(layer)(received, shared.rate.float(), noise_var)
    decoded, expected = conclude(mean.clamp_min(0), noise, 12), layer.decode(received, popularity, num_active=12)
    assert torch.equal(decoded.counts, expected.counts)
    torch.testing.assert_close(decoded.mean, expected.mean, atol=1e-5, rtol=0)  # the order of a few sums differs


def test_the_example_of_the_page_decodes_as_the_layer_does(exported, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    layer, directory = exported
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "layer").symlink_to(directory / "layer")
    (tmp_path / "decoder.onnx").symlink_to(directory / "decoder.onnx")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    named = {}
    exec(compile(code, str(PAGE), "exec"), named)
    expected = layer.decode(named["received"], named["popularity"], num_active=named["num_active"])
    assert torch.equal(named["decoded"].counts, expected.counts)
    torch.testing.assert_close(named["decoded"].mean, expected.mean, atol=TOLERANCE, rtol=0)


def test_nobody_sends_and_nothing_is_decoded():
    layer = ajar_layer()
    received, rate, noise_var = signal(layer, 5)
    mean, num_active_hat, _ = StaticNet(layer)(received, 0 * rate, noise_var)
    assert not mean.any()
    assert num_active_hat == 0


def test_an_export_loses_nothing_and_names_mistakes(exported, tmp_path):
    _, directory = exported
    file = directory / "decoder.onnx"
    before = file.read_bytes()
    with pytest.raises(ArtefactError, match=r"decoder\.onnx exists; replace it with --overwrite"):
        run([str(directory / "layer"), "--out", str(file)])
    assert file.read_bytes() == before
    with pytest.raises(ArtefactError, match=r"layer\.json does not exist"):
        run([str(tmp_path), "--out", str(tmp_path / "decoder.onnx")])
    with pytest.raises(ConfigError, match=r"'tflite'.*'onnx', 'torch'"):
        run([str(directory / "layer"), "--format", "tflite"])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named(monkeypatch, tmp_path):
    layer = ajar_layer()
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigError, match=r"onnxscript is not installed; .*pip install 'aircomp\[onnx\]'"):
        export_layer(layer, tmp_path / "decoder.onnx", "onnx")
    communication._hub_mixin.cache_clear()
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for use in (layer.save_pretrained, CommunicationLayer.from_pretrained):
        with pytest.raises(ConfigError, match=r"huggingface_hub is not installed; .*pip install 'aircomp\[hub\]'"):
            use(tmp_path)


@pytest.mark.process
def test_layer_and_export_import_without_the_extras():
    code = """
import sys
sys.modules.update(dict.fromkeys(["onnx", "onnxruntime", "onnxscript", "huggingface_hub"]))
import aircomp.cli.export, aircomp.layer
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_layer_goes_through_the_mixin_and_a_local_folder(tmp_path):
    pytest.importorskip("huggingface_hub")
    layer = ajar_layer()
    assert layer.save_pretrained(tmp_path / "layer") is None
    names = {"layer.safetensors", "layer.json", "config.json", "README.md"}
    assert {p.name for p in (tmp_path / "layer").iterdir()} == names
    loaded = CommunicationLayer.from_pretrained(tmp_path / "layer", snr_reference="slot")
    assert isinstance(loaded, CommunicationLayer)
    assert (loaded.snr_reference, loaded.config["seed"]) == ("slot", 0)
    assert torch.equal(loaded.codebook, layer.codebook)
    assert all(torch.equal(a, b) for a, b in zip(loaded.net.parameters(), layer.net.parameters(), strict=True))
    assert torch.equal(CommunicationLayer.load(tmp_path / "layer").codebook, layer.codebook)


def test_the_mixin_takes_a_folder_before_the_layer_of_its_name(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    ajar_layer().save("128x64")
    assert torch.equal(CommunicationLayer.from_pretrained("128x64").codebook, ajar_layer().codebook)


def test_a_folder_that_holds_no_layer_is_named(tmp_path):
    pytest.importorskip("huggingface_hub")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ArtefactError, match=r"layer\.json does not exist"):
        CommunicationLayer.from_pretrained(tmp_path)
    with pytest.raises(ArtefactError, match="neither a layer directory nor a repository"):
        CommunicationLayer.from_pretrained(tmp_path / "nowhere", local_files_only=True)
