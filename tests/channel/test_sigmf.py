"""SigMF recordings: what is written is what a reader of the standard finds, and what we read again."""

import json

import numpy as np
import pytest
import torch

import aircomp
from aircomp.cli import main
from aircomp.encode.codebook import count
from aircomp.errors import ArtefactError, ConfigError
from aircomp.train.fragments import FragmentRound, save_round
from helpers.draws import seeded


def edited(path, **changes):
    """Change entries of the group `global`; None takes one out."""
    file = path.with_name(f"{path.name}.sigmf-meta")
    meta = json.loads(file.read_text())
    meta["global"] = {name: value for name, value in {**meta["global"], **changes}.items() if value is not None}
    file.write_text(json.dumps(meta))


@pytest.fixture
def written(tmp_path):
    samples = torch.randn(5, 64, generator=seeded(0))
    aircomp.write_sigmf(tmp_path / "round", samples, sample_rate=2e6, about={"popularity": [0.25, 0.75]})
    return tmp_path / "round", samples


@pytest.mark.parametrize("uses", [1, 2, 7, 64])
def test_samples_come_back_bit_by_bit(tmp_path, uses):
    samples = torch.randn(5, uses, generator=seeded(1))
    aircomp.write_sigmf(tmp_path / "round", samples)
    assert torch.equal(aircomp.read_sigmf(tmp_path / "round").samples, samples)


def test_what_was_said_comes_back(written):
    found = aircomp.read_sigmf(f"{written[0]}.sigmf-meta")
    assert found.sample_rate == 2e6
    assert dict(found.about) == {"popularity": [0.25, 0.75], "slots": 5, "uses": 64}


def test_a_sample_is_two_uses_as_the_standard_stores_it(written):
    path, samples = written
    raw = np.fromfile(f"{path}.sigmf-data", dtype="<c8")
    assert raw.shape == (5 * 32,)
    torch.testing.assert_close(torch.from_numpy(raw.real.copy()), samples.flatten()[0::2], rtol=0, atol=0)
    torch.testing.assert_close(torch.from_numpy(raw.imag.copy()), samples.flatten()[1::2], rtol=0, atol=0)


def test_the_reference_implementation_accepts_it(written):
    sigmf = pytest.importorskip("sigmf", reason="the package of the standard's authors")
    recording = sigmf.fromfile(f"{written[0]}.sigmf-meta")
    recording.validate()
    np.testing.assert_array_equal(recording.read_samples(), np.fromfile(f"{written[0]}.sigmf-data", dtype="<c8"))


def test_a_recording_of_a_radio_is_read_with_the_uses_of_a_slot(tmp_path):
    values = np.array([16384, -32768, 0, 8192], dtype="<i2")
    (tmp_path / "radio.sigmf-data").write_bytes(values.tobytes())
    said = {"core:datatype": "ci16_le", "core:version": "1.2.0", "core:sample_rate": 1e6}
    (tmp_path / "radio.sigmf-meta").write_text(json.dumps({"global": said, "captures": [], "annotations": []}))
    with pytest.raises(ConfigError, match="give uses="):
        aircomp.read_sigmf(tmp_path / "radio")
    found = aircomp.read_sigmf(tmp_path / "radio", uses=2)
    assert found.samples.tolist() == [[0.5, -1.0], [0.0, 0.25]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"core:datatype": "rf64_le"}, "expected one channel of cf32_le or ci16_le"),
        ({"core:num_channels": 2}, "on 2 channels"),
        ({"core:sha512": "0" * 128}, "its checksum differs"),
        ({"core:sample_rate": "fast"}, "sample rate of 'fast'"),
        ({"aircomp:uses": 63.5}, "claims 63.5 channel uses"),
        ({"aircomp:uses": 48}, "ends within a slot of 48"),
    ],
)
def test_a_damaged_recording_is_refused_in_a_sentence(written, changes, message):
    edited(written[0], **changes)
    with pytest.raises(ArtefactError, match=message):
        aircomp.read_sigmf(written[0])


def test_samples_that_are_no_numbers_are_refused(written):
    values = np.full(64, np.nan, dtype="<f4").tobytes()
    written[0].with_name("round.sigmf-data").write_bytes(values)
    edited(written[0], **{"core:sha512": None})
    with pytest.raises(ArtefactError, match="no finite numbers"):
        aircomp.read_sigmf(written[0])


def test_a_saved_round_goes_out_as_iq_and_is_decoded_from_it(tmp_path, capsys):
    indices = torch.randint(0, 128, (4, 40), generator=seeded(2))
    popularity = torch.arange(1, 129).float().reciprocal()
    save_round(tmp_path / "rounds", 0, FragmentRound(indices, popularity / popularity.sum(), torch.zeros(128, 20)))
    command = ["export", "128x64", "--format", "sigmf", "--fragments", str(tmp_path / "rounds")]
    main([*command, "--snr-db", "20", "--out", str(tmp_path / "iq")])
    assert "4 devices" in capsys.readouterr().out
    layer = aircomp.CommunicationLayer.load("128x64")
    devices = [aircomp.read_sigmf(tmp_path / "iq" / f"device_{k:03d}").samples for k in range(4)]
    for sent, chosen in zip(devices, indices, strict=True):
        assert torch.equal(sent, layer.codebook[chosen])
    received = aircomp.read_sigmf(tmp_path / "iq" / "received")
    # 20 dB below the signal, whose mean power is known to a few percent after 2,560 uses
    noise = received.samples - torch.stack(devices).sum(0)
    assert float(noise.square().mean() / received.samples.square().mean()) == pytest.approx(0.01, rel=0.15)
    decoded = layer.decode(received.samples, torch.tensor(received.about["popularity"]))
    assert torch.equal(decoded.counts, count(indices, 128).to(decoded.counts))


def test_a_round_needs_fragments_of_the_layers_size(tmp_path):
    with pytest.raises(SystemExit, match="2"):
        main(["export", "128x64", "--format", "sigmf", "--out", str(tmp_path / "iq")])
    save_round(tmp_path / "rounds", 0, FragmentRound(torch.zeros(2, 3).long(), torch.ones(64), torch.zeros(64, 20)))
    for extra in ([], ["--round", "1"]):
        with pytest.raises(SystemExit, match="2"):
            main(["export", "128x64", "--format", "sigmf", "--fragments", str(tmp_path / "rounds"), *extra])
