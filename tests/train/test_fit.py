import json
import math

import pytest
import torch

from aircomp.common.artefact import read_json
from aircomp.common.tensors import read_tensors
from aircomp.decoders.estimate.pilot import PilotEstimator
from aircomp.decoders.net.gamp_net import GampNet
from aircomp.encode.settings import CodebookSettings
from aircomp.errors import ArtefactError, ConfigError, TrainingDiverged
from aircomp.layer.communication import CommunicationLayer
from aircomp.train import loop
from aircomp.train import loss as losses
from aircomp.train.batches import make_batch
from aircomp.train.fit import pretrain, validation_batches
from aircomp.train.fragments import save_round
from aircomp.train.loop import descend
from aircomp.train.recipe import Cosine, Halving, PretrainSettings, load_preset, preset_names
from aircomp.train.rounds import load_rounds
from aircomp.train.state import Progress
from aircomp.train.step import NOISE_ERROR, TOLD_ERROR, LayerModel, batch_loss
from helpers.draws import seeded
from helpers.records import read_lines, without_times
from helpers.settings import TRAINING

pytestmark = pytest.mark.seconds

QUICK = PretrainSettings.parse(TRAINING)


def files(directory):
    """Return what a training leaves of its result: the bytes of the layers, and the records without times."""
    layers = [directory / "layer.safetensors", directory / "last" / "layer.safetensors"]
    return [f.read_bytes() for f in layers], without_times(read_lines(directory / "metrics.jsonl"))


@pytest.fixture(scope="module")
def finished(collection, tmp_path_factory):
    """Return the directory of a finished training, for reading only."""
    out = tmp_path_factory.mktemp("finished") / "layer"
    pretrain([collection], QUICK, out)
    return out


def test_training_keeps_the_best_epoch(finished):
    _, records = files(finished)
    assert [r["epoch"] for r in records] == [1, 2]
    layer = CommunicationLayer.load(finished)
    best = min(records, key=lambda r: r["validation_loss"])
    assert (layer.training["best_epoch"], layer.training["validation_loss"]) == (best["epoch"], best["validation_loss"])
    layer = CommunicationLayer.load(finished)
    assert not torch.allclose(layer.codebook, LayerModel(QUICK, 16).codebook(), atol=1e-3), "the codebook was learned"


def test_the_directory_holds_layer_records_and_result(finished):
    names = {"layer.json", "layer.safetensors", "config.toml", "metrics.jsonl", "last", "checkpoint", "result.json"}
    assert {p.name for p in finished.iterdir()} >= names
    layer = CommunicationLayer.load(finished)
    assert layer.config["seed"] == 0
    assert {row["snr_db"] for row in layer.training["test"]} == {0, 3, 5, 10, 15, 20}
    assert read_json(finished / "result.json")["rows"] == layer.training["test"]
    rounds = layer.training["rounds"]
    assert {part: len(names) for part, names in rounds.items()} == {"train": 4, "validation": 1, "test": 1}
    assert rounds["test"][0].startswith("fragments/round_0000")
    low, high = layer.num_active_range
    assert 3 <= low < high <= 6
    CommunicationLayer.load(finished / "last")
    tensors, metadata = read_tensors(finished / "checkpoint" / "training.safetensors")
    assert {name.split(".")[0] for name in tensors} == {"last", "best", "adam"}
    assert json.loads(metadata["progress"])["epoch"] == 2


def test_a_second_training_does_not_lose_the_first(collection, tmp_path):
    out = tmp_path / "layer"
    layer = pretrain([collection], QUICK.changed(epochs=1), out)
    with pytest.raises(ArtefactError, match=r"finished run.*--overwrite"):
        pretrain([collection], QUICK, out)
    (out / "config.toml").unlink()  # as in a layer that was copied here
    with pytest.raises(ArtefactError, match="holds a communication layer"):
        pretrain([collection], QUICK, out)
    assert torch.equal(CommunicationLayer.load(out).codebook, layer.codebook)
    other = pretrain([collection], QUICK.changed(epochs=1, seed=1), out, overwrite=True)
    assert not torch.equal(other.codebook, layer.codebook)


class Killed(BaseException):
    """As a signal would: nothing catches it."""


@pytest.mark.parametrize("steps", [1, 13])  # before any checkpoint; within the second epoch (of 8 steps each)
def test_a_killed_training_resumes_to_the_same_bits(collection, finished, tmp_path, monkeypatch, steps):
    done = []

    def dying_step(*args):
        if len(done) == steps:
            raise Killed
        done.append(1)
        return descend(*args)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "descend", dying_step)
        with pytest.raises(Killed):
            pretrain([collection], QUICK, tmp_path / "parts")
    pretrain([collection], QUICK, tmp_path / "parts", resume=True)
    assert files(tmp_path / "parts") == files(finished)


def test_more_epochs_can_be_asked_for_later(collection, finished, tmp_path):
    pretrain([collection], QUICK.changed(epochs=1), tmp_path / "parts")
    pretrain([collection], QUICK, tmp_path / "parts", resume=True)
    assert files(tmp_path / "parts") == files(finished)


def test_resuming_with_something_else_is_refused(collection, tmp_path, synthetic_round):
    out = tmp_path / "layer"
    pretrain([collection], QUICK.changed(epochs=1), out)
    with pytest.raises(ArtefactError, match="other settings"):
        pretrain([collection], QUICK.changed(learning_rate=1e-3), out, resume=True)
    other = tmp_path / "other"
    for index in range(6):
        save_round(other, index, synthetic_round(50 + index))
    with pytest.raises(ArtefactError, match="other fragments"):
        pretrain([other], QUICK, out, resume=True)
    checkpoint = out / "checkpoint" / "training.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-10])
    with pytest.raises(ArtefactError, match="damaged"):
        pretrain([collection], QUICK, out, resume=True)


def test_divergence_keeps_the_best_layer(collection, tmp_path, monkeypatch):
    out, calls, healthy = tmp_path / "layer", [], losses.count_error

    def breaks_down(mean, counts):
        calls.append(1)
        return healthy(mean, counts) * (math.nan if len(calls) > 12 else 1.0)

    with monkeypatch.context() as patch:
        patch.setattr(losses, "count_error", breaks_down)
        with pytest.raises(
            TrainingDiverged, match=r"diverged in epoch 2 .*nan.*the best layer, of epoch 1, is kept in"
        ):
            pretrain([collection], QUICK, out)
    best = CommunicationLayer.load(out)
    assert best.training["best_epoch"] == 1
    assert torch.isfinite(best.codebook).all()
    assert not (out / "result.json").exists(), "it did not finish"


def test_divergence_in_the_first_step_says_that_there_is_no_layer(collection, tmp_path, monkeypatch):
    healthy = losses.sparsity
    with monkeypatch.context() as patch:
        patch.setattr(losses, "sparsity", lambda mean, counts: math.inf * (1 + healthy(mean, counts)))
        with pytest.raises(TrainingDiverged, match=r"epoch 1 .*loss is inf.*no epoch had ended.*learning_rate"):
            pretrain([collection], QUICK, tmp_path / "layer")


def test_the_learning_rate_is_halved_and_training_ends_as_in_the_paper():
    settings = PretrainSettings(
        learning_rate=1.0, schedule=Halving(halve_after=2, patience=5), tolerance=0.1, epochs=50
    )
    progress, rates = Progress(1.0), []
    # improves, improves by too little, stays, improves, then never again
    for loss in (4.0, 3.95, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0):
        assert progress.ended(settings) is None
        progress = progress.advance(loss, 1.0, settings)
        rates.append(progress.learning_rate)
    assert rates == [1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]
    assert (progress.best_epoch, progress.best_loss) == (4, 3.0)
    progress = progress.advance(2.95, 1.0, settings)
    assert progress.ended(settings) == "no improvement for 5 epochs"


def test_the_learning_rate_falls_along_a_cosine_over_all_epochs():
    settings = PretrainSettings(learning_rate=1.0, schedule=Cosine(), epochs=4)
    progress, rates = Progress(settings.rate(1)), []
    while progress.ended(settings) is None:
        rates.append(progress.learning_rate)
        progress = progress.advance(1.0, 1.0, settings)  # never improves, and yet is neither halved nor ended
    assert rates == pytest.approx([0.9619, 0.6913, 0.3087, 0.0381], abs=1e-4)  # (1 + cos(π/8)) / 2 and so on
    assert settings.identity != settings.changed(epochs=5).identity, "other epochs are another training"
    halving = settings.changed(schedule="halving")
    assert halving.identity == halving.changed(epochs=5).identity


def test_time_and_epochs_are_limited():
    settings = PretrainSettings(epochs=10, seconds=35.0)
    progress = Progress(1.0).advance(1.0, 10.0, settings)
    assert progress.seconds_left(settings) == 25
    progress = progress.advance(0.9, 10.0, settings)
    assert progress.ended(settings) is None
    progress = progress.advance(0.8, 10.0, settings)
    assert progress.ended(settings) == "35 seconds spent", "a fourth epoch would not end in time"
    assert progress.ended(settings.changed(seconds=None, epochs=3)) == "3 epochs done"


def validation(collection, settings):
    rounds = load_rounds([collection], settings.data, seed=0).validation
    return validation_batches(rounds, settings.data, rng=seeded(0))


def test_steps_lower_the_loss_and_every_part_learns(collection):
    settings = QUICK.changed(**{"codebook.start": "gaussian"})
    batch = validation(collection, settings)[0]
    model = LayerModel(settings, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = []
    for _ in range(15):
        total = batch_loss(model, batch, settings.loss, rng=torch.Generator().manual_seed(0)).total
        descend(model, optimizer, total, settings.clip_norm)
        found.append(total.item())
    assert found[-1] < 0.8 * found[0]
    still = [name for name, value in model.state_dict().items() if torch.equal(value, before[name])]
    assert still == []


def test_the_codebook_learns_from_what_is_sent_and_from_how_it_is_decoded(collection, monkeypatch):
    batch = validation(collection, QUICK)[0]
    model, unroll, seen = LayerModel(QUICK, 16), GampNet.unroll, []

    def watched(net, received, codebook, *args, **kwargs):
        received.retain_grad()
        seen.extend([received, codebook])
        codebook.retain_grad()
        return unroll(net, received, codebook, *args, **kwargs)

    monkeypatch.setattr(GampNet, "unroll", watched)
    batch_loss(model, batch, QUICK.loss, rng=torch.Generator()).total.backward()
    received, codebook = seen
    through_air = batch.counts.T @ received.grad
    assert (through_air != 0).any()
    assert not torch.allclose(codebook.grad, through_air, rtol=1e-3), "the decoder's own use of it adds to the gradient"


def test_a_frozen_codebook_stays(collection, tmp_path):
    settings = QUICK.changed(codebook=CodebookSettings(form="fixed").model_dump(), epochs=1)
    layer = pretrain([collection], settings, tmp_path / "layer")
    assert torch.equal(layer.codebook, LayerModel(settings, 16).codebook().detach())


def test_validation_meets_the_same_slots_and_noise_every_time(collection):
    settings = QUICK.changed(**{"data.validation_samples": 60, "data.batch_slots": 12})
    first, second = (validation(collection, settings) for _ in range(2))
    assert all(torch.equal(a.counts, b.counts) for a, b in zip(first, second, strict=True))
    assert [b.snr_db for b in first] == [6, 8, 10, 12, 14]
    assert {b.snr_reference for b in first} == {"slot", "round"}
    model = LayerModel(settings, 16)
    values = [batch_loss(model, first[0], settings.loss, rng=torch.Generator().manual_seed(0)).total for _ in range(2)]
    assert torch.equal(*values)


def test_a_step_is_clipped(collection):
    settings = QUICK.changed(clip_norm=1e-3)
    model = LayerModel(settings, 16)
    batch = validation(collection, settings)[0]
    total = batch_loss(model, batch, settings.loss, rng=torch.Generator()).total
    descend(model, torch.optim.SGD(model.parameters(), lr=0.1), total, settings.clip_norm)
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-2)


def test_the_quantisation_loss_needs_raw_fragments(tmp_path, synthetic_round, collection):
    settings = QUICK.changed(**{"loss.quantization": 0.1}, epochs=1)
    seen = []
    pretrain([collection], settings, tmp_path / "raw", on_epoch=seen.append)
    assert seen[0]["train_quantization"] > 0
    for index in range(3):
        save_round(tmp_path / "bare", index, synthetic_round(index, raw=False))
    with pytest.raises(ConfigError, match=r"needs raw fragments.*--raw"):
        pretrain([tmp_path / "bare"], settings, tmp_path / "layer")
    assert not (tmp_path / "layer").exists()


def test_presets_are_listed_and_a_typo_is_named():
    assert {"default", "short", "round", "zoo", "cell"} == set(preset_names())
    with pytest.raises(ConfigError, match="did you mean 'short'"):
        load_preset("shrt")


class Louder(torch.nn.Module):
    """A codebook times a number."""

    def __init__(self, codebook):
        super().__init__()
        self.codebook, self.times = codebook, torch.nn.Parameter(torch.ones(()))

    def forward(self):
        return self.times * self.codebook().detach()


@pytest.mark.parametrize("reference", ["slot", "round"])
@pytest.mark.parametrize("follows", [True, False])
def test_gradients_see_that_noise_follows_the_power_where_that_is_asked_for(
    reference, follows, collection, monkeypatch
):
    settings = QUICK.changed(**{"data.estimates": "round", "codebook.noise_follows": follows})
    batch = make_batch(load_rounds([collection], settings.data, seed=0).train[0], torch.arange(40), 0.0, reference)
    model = LayerModel(settings, 16)
    model.codebook = Louder(model.codebook)
    heard = []

    def unroll(received, *others, **named):
        heard.append(received)
        return GampNet.unroll(model.net, received, *others, **named)

    monkeypatch.setattr(model.net, "unroll", unroll)
    model(batch, rng=torch.Generator().manual_seed(0))
    (received,) = heard
    (gradient,) = torch.autograd.grad(received.square().sum() / 2, model.codebook.times)
    # louder codewords make a louder signal, and as much louder noise: all that is received is proportional to them
    sent = batch.counts @ model.codebook().detach()
    expected = received if follows else sent
    torch.testing.assert_close(gradient, (received.detach() * expected.detach()).sum())


@pytest.mark.parametrize("reference", ["slot", "round"])
def test_training_may_start_from_what_a_whole_round_tells(reference, collection, monkeypatch):
    settings = QUICK.changed(**{"data.estimates": "round", "data.side_information": True})
    batch = make_batch(load_rounds([collection], settings.data, seed=0).train[0], torch.arange(40), 5.0, reference)
    model = LayerModel(settings, 16)
    monkeypatch.setattr(PilotEstimator, "estimate", None)  # nothing is estimated
    started = {}

    def unroll(received, codebook, rate, noise_var, **held):
        started.update(received=received, rate=rate, noise=noise_var, held=held)
        return GampNet.unroll(model.net, received, codebook, rate, noise_var, **held)

    monkeypatch.setattr(model.net, "unroll", unroll)
    terms = batch_loss(model, batch, settings.loss, rng=torch.Generator().manual_seed(0))
    assert torch.isfinite(terms.total)
    terms.total.backward()
    assert model.codebook.base.grad is not None
    assert started["held"] == {}  # the noise may move
    assert float(started["rate"].sum(1)[0]) == pytest.approx(batch.num_active, rel=4 * TOLD_ERROR)
    sent = batch.counts @ model.codebook().detach()
    noise = (started["received"].detach() - sent).square().mean()
    # 40 slots of 16 uses: the noise's own power is within 3·√(2/640); what is told of it within four standard errors
    assert float(started["noise"].mean()) == pytest.approx(float(noise), rel=3 * (2 / 640) ** 0.5 + 4 * NOISE_ERROR)
