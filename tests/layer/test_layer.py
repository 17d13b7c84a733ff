import pytest
import torch

from aircomp.channel.awgn import transmit
from aircomp.common.artefact import read_json, write_json
from aircomp.common.tensors import read_tensors, write_tensors
from aircomp.encode.codebook import count
from aircomp.errors import ArtefactError
from aircomp.layer.communication import CommunicationLayer
from helpers.layers import NUM_CODEWORDS, describe_anew, make_layer


def received_round(layer):
    rng = torch.Generator().manual_seed(5)
    counts = count(torch.randint(0, NUM_CODEWORDS, (4, 30), generator=rng), NUM_CODEWORDS)
    received = transmit(counts, layer.codebook, snr_db=15.0, reference="slot", rng=rng)
    return counts, received, torch.full((NUM_CODEWORDS,), 1 / NUM_CODEWORDS)


def test_a_saved_layer_decodes_to_the_same_bits(tmp_path):
    layer = make_layer()
    layer.save(tmp_path)
    loaded = CommunicationLayer.load(tmp_path)
    _, received, popularity = received_round(layer)
    for options in ({}, {"num_active": 4}, {"noise_var": 0.01}):
        first, second = layer.decode(received, popularity, **options), loaded.decode(received, popularity, **options)
        assert torch.equal(first.counts, second.counts)
        assert torch.equal(first.mean, second.mean)
    assert (loaded.config["seed"], loaded.training) == (0, {"epochs": 3})
    assert {p.name for p in tmp_path.iterdir()} == {"layer.safetensors", "layer.json"}


def test_a_codebook_of_double_precision_is_saved_as_it_is_loaded(tmp_path):
    layer = make_layer()
    CommunicationLayer(layer.codebook.double(), layer.net).save(tmp_path)
    assert torch.equal(CommunicationLayer.load(tmp_path).codebook, layer.codebook)


def test_loading_rebuilds_the_network_from_its_own_settings(tmp_path):
    make_layer(num_layers=3, filters=5).save(tmp_path)
    settings = CommunicationLayer.load(tmp_path).net.settings
    assert (settings.num_layers, settings.filters) == (3, 5)
    make_layer(num_layers=1, kernel=5).save(tmp_path)
    settings = CommunicationLayer.load(tmp_path).net.settings
    assert (settings.num_layers, settings.kernel) == (1, 5)


def test_decoding_recovers_counts_and_obeys_what_is_given():
    layer = make_layer()
    counts, received, popularity = received_round(layer)
    decoded = layer.decode(received, popularity)
    assert decoded.counts.shape == counts.shape
    assert (decoded.counts.sum(dim=1) == decoded.num_active).all()
    assert (layer.decode(received, popularity, num_active=7).counts.sum(dim=1) == 7).all()


def test_the_noise_is_of_the_round_or_of_each_slot():
    layer = make_layer()
    _, received, popularity = received_round(layer)
    of_round = layer.decode(received, popularity).noise_var
    of_slot = layer.decoder(snr_reference="slot").decode(received, popularity).noise_var
    assert len(of_round.unique()) == 1
    assert len(of_slot.unique()) > 1
    assert torch.equal(make_layer(snr_reference="slot").decode(received, popularity).noise_var, of_slot)


def test_without_a_bundled_layer_load_says_what_to_do(monkeypatch, tmp_path):
    (tmp_path / "weights").mkdir()
    monkeypatch.setattr("aircomp.layer.zoo.resources.files", lambda package: tmp_path)
    with pytest.raises(ArtefactError, match=r"carries no layer 128x64.*aircomp pretrain"):
        CommunicationLayer.load()
    make_layer().save(tmp_path / "weights" / "128x64")
    assert CommunicationLayer.load().config["seed"] == 0


def test_a_decoder_is_never_paired_with_another_codebook(tmp_path):
    make_layer(0).save(tmp_path / "a")
    make_layer(1).save(tmp_path / "b")
    tensors, _ = read_tensors(tmp_path / "a" / "layer.safetensors")
    other, _ = read_tensors(tmp_path / "b" / "layer.safetensors")
    write_tensors(tmp_path / "a" / "layer.safetensors", tensors | {"codebook": other["codebook"]})
    with pytest.raises(ArtefactError, match=r"codebook in .* is not the one that layer.json describes"):
        CommunicationLayer.load(tmp_path / "a")
    write_tensors(tmp_path / "a" / "layer.safetensors", other | {"codebook": tensors["codebook"]})
    with pytest.raises(ArtefactError, match=r"decoder in .* is not the one that layer.json describes"):
        CommunicationLayer.load(tmp_path / "a")


def test_missing_truncated_and_foreign_files_are_named(tmp_path):
    with pytest.raises(ArtefactError, match=r"layer\.json does not exist"):
        CommunicationLayer.load(tmp_path / "nowhere")
    make_layer().save(tmp_path)
    weights, description = tmp_path / "layer.safetensors", tmp_path / "layer.json"
    whole, told = weights.read_bytes(), description.read_text()
    for broken in (whole[:-7], whole[:20], b"", b"not tensors at all"):
        weights.write_bytes(broken)
        with pytest.raises(ArtefactError, match="damaged or not a safetensors file"):
            CommunicationLayer.load(tmp_path)
    weights.unlink()
    with pytest.raises(ArtefactError, match=r"layer\.safetensors does not exist"):
        CommunicationLayer.load(tmp_path)
    weights.write_bytes(whole)
    for broken, message in (
        (told[:-9], "not readable JSON"),
        ("[1]", "does not describe"),
        ("{}", "does not describe"),
    ):
        description.write_text(broken)
        with pytest.raises(ArtefactError, match=message):
            CommunicationLayer.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_layers": 3}, "does not hold the decoder that layer.json describes"),
        ({"num_layers": 1000}, "does not hold the decoder that layer.json describes"),
        ({"num_layers": 10**9}, "config.net: num_layers = 1000000000: expected 1 to 1,000"),
        ({"filters": 4096}, "does not hold the decoder that layer.json describes"),
        ({"filters": 10**7}, "config.net: filters = 10000000: expected 1 to 4,096"),
        ({"cnn": False}, "config.net: there is no setting 'cnn'"),
        ({"kernel": 4}, "config.net: kernel = 4"),
        ({"num_layres": 3}, "config.net: there is no setting 'num_layres'"),
    ],
)
def test_a_description_that_claims_something_else_is_refused(tmp_path, change, message):
    make_layer().save(tmp_path)
    description = read_json(tmp_path / "layer.json")
    description["config"]["net"] |= change
    write_json(tmp_path / "layer.json", description)
    with pytest.raises(ArtefactError, match=message):
        CommunicationLayer.load(tmp_path)


def rewrite(directory, **changes):
    """Change tensors and their hashes together, as someone who means it would."""
    tensors = {k: v for k, v in (read_tensors(directory / "layer.safetensors")[0] | changes).items() if v is not None}
    write_tensors(directory / "layer.safetensors", tensors)
    describe_anew(directory)


@pytest.mark.parametrize(
    ("codebook", "message"),
    [
        (None, "lacks codebook"),
        (torch.zeros(5), r"codebook is float32 \[5\]; expected float32 \[codewords, uses\]"),
        (torch.ones(1, 16), "claims 1 codewords of length 16"),
        (torch.ones(16, 16), "unit norm"),
        (torch.full((16, 16), torch.nan), "not finite"),
    ],
)
def test_impossible_codebooks_are_refused(tmp_path, codebook, message):
    make_layer().save(tmp_path)
    rewrite(tmp_path, codebook=codebook)
    with pytest.raises(ArtefactError, match=message):
        CommunicationLayer.load(tmp_path)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    make_layer().save(tmp_path)
    name, weight = next((k, v) for k, v in read_tensors(tmp_path / "layer.safetensors")[0].items() if k != "codebook")
    rewrite(tmp_path, **{name: torch.full_like(weight, torch.inf)})
    with pytest.raises(ArtefactError, match="holds numbers that are not finite"):
        CommunicationLayer.load(tmp_path)
