"""Wrong calls of the Python API: each is an `AirCompError` that names the argument, what was given, what is expected."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

import aircomp
from aircomp.channel.awgn import Awgn
from aircomp.channel.base import AtDevices, Csi
from aircomp.data.images import load
from aircomp.errors import AirCompError
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.cost import Radio, round_cost
from aircomp.schemes.ideal import Ideal
from aircomp.schemes.settings import SchemeSettings
from aircomp.testing import check_decoder
from aircomp.train.collect import collect
from aircomp.train.evaluate import Plan, evaluate
from aircomp.train.fit import pretrain
from aircomp.train.recipe import load_preset

pytestmark = pytest.mark.usefixtures("as_in_production")

NAN, INF = math.nan, math.inf
COUNTS = torch.ones(3, 8, dtype=torch.int64)
BOOK = torch.eye(8)
WORDS = torch.ones(8, 5)
QUIET = {"rounds": 1, "engine": "serial", "local.steps": 1, "participation.low": 1, "participation.high": 1}


def rng():
    return torch.Generator().manual_seed(0)


def transmit(counts=COUNTS, codebook=BOOK, **changes):
    return aircomp.transmit(counts, codebook, **{"snr_db": 5.0, "rng": rng()} | changes)


def aggregate(rule="mean", counts=COUNTS, codewords=WORDS, **options):
    return aircomp.aggregate(rule, counts, codewords, **options)


def make_codebook(kind="gaussian", num_codewords=8, codeword_length=4, rng_=None):
    return aircomp.make_codebook(kind, num_codewords, codeword_length, rng=rng() if rng_ is None else rng_)


ABOUT = {"sends": "nothing", "needs": "quiet", "source": "nobody"}


def second_gamp():
    aircomp.uplink_names()  # the package's schemes enter first
    return aircomp.scheme("gamp", **ABOUT | {"needs": "any"})(Unencoded)


def make_scheme(settings="gamp", context=None):
    return aircomp.make_scheme(settings, context)


def simulate(preset="digits", **changes):
    return aircomp.simulate(preset, **QUIET | changes)


def plan(**changes):
    return evaluate(Path("nowhere"), Plan(**{"decoders": ["gamp"], "snr_db": [5.0]} | changes))


def train(directories=("nowhere",), settings=None, out="runs/never", **options):
    return pretrain(directories, settings or load_preset("short"), out, **options)


def cost(uplink=None, num_params=1000, num_active=10, radio=None):
    return round_cost(uplink or Ideal(), num_params, num_active, radio or Radio())


def layer():
    return aircomp.CommunicationLayer.load()


def decode(received=None, popularity=None, **side):
    book = layer().codebook
    received = torch.zeros(4, book.shape[1]) if received is None else received
    return layer().decode(received, torch.ones(len(book)) if popularity is None else popularity, **side)


class Empty:
    """An object without methods."""


class Mute:
    """A decoder that returns nothing."""

    def decode(self, received, popularity, **side):
        return None


class Short:
    """A channel that loses a use."""

    def sound(self, num_devices, num_uses, *, rng):
        return Csi(AtDevices(num_devices))

    def carry(self, signal, csi, *, rng):
        return signal.superpose(None)[:, :, 1:]


class Wrong(Ideal):
    """An uplink that delivers a tensor."""

    def decode(self, received, broadcast, private, csi):
        return received.values, {}


class Unencoded(Ideal):
    """An uplink that encodes into a tensor."""

    def encode(self, messages, broadcast, csi, *, rng):
        return messages


def pair(**wrong):
    data = load("digits")
    images = {"train": data.train_images, "test": data.test_images} | wrong
    labels = (data.train_labels, data.test_labels)
    return tuple(list(zip(x, y, strict=False)) for x, y in zip(images.values(), labels, strict=True))


# what the message names, and the call
CALLS = [
    # transmit
    ("counts is the list", lambda: transmit([[1]])),
    ("counts is None", lambda: transmit(None)),
    (r"counts is torch.int64 \[8\]; expected", lambda: transmit(torch.ones(8, dtype=torch.int64))),
    ("counts is torch.complex64", lambda: transmit(torch.ones(3, 8) + 0j)),
    ("counts is torch.bool", lambda: transmit(torch.ones(3, 8) > 0)),
    ("counts .*not finite", lambda: transmit(torch.full((3, 8), NAN))),
    ("counts holds negative", lambda: transmit(-COUNTS)),
    (r"counts has shape \(3, 8\) and codebook \(7, 4\)", lambda: transmit(codebook=torch.ones(7, 4))),
    ("codebook is torch.int64", lambda: transmit(codebook=torch.ones(8, 4, dtype=torch.int64))),
    ("codebook .*not finite", lambda: transmit(codebook=torch.full((8, 4), INF))),
    ("codebook is the ndarray", lambda: transmit(codebook=BOOK.numpy())),
    ("snr_db is nan; expected a number of at least -100", lambda: transmit(snr_db=NAN)),
    ("snr_db is the str '5'", lambda: transmit(snr_db="5")),
    ("snr_db is None", lambda: transmit(snr_db=None)),
    ("snr_db is -inf", lambda: transmit(snr_db=-INF)),
    (r"snr_db is the list \[5.0\]", lambda: transmit(snr_db=[5.0])),
    ("no reference 'slots': did you mean 'slot'", lambda: transmit(reference="slots")),
    ("reference is 3; expected one of round, slot, transmit", lambda: transmit(reference=3)),
    ("rng is 0; expected a torch.Generator", lambda: transmit(rng=0)),
    ("rng is None", lambda: transmit(rng=None)),
    ("num_active is -1; expected a number of at least 0", lambda: transmit(num_active=-1)),
    ("num_active is nan", lambda: transmit(num_active=NAN)),
    # aggregate
    ("no aggregation rule 'medean'", lambda: aggregate("medean")),
    ("rule is 3; expected a function", lambda: aggregate(3)),
    (r"rule is len.*expected a function of \(counts, codewords\)", lambda: aggregate(len)),
    ("rule is None", lambda: aggregate(None)),
    ("counts is the list", lambda: aggregate(counts=[[1]])),
    ("counts is torch.complex64", lambda: aggregate(counts=COUNTS + 0j)),
    ("counts holds negative", lambda: aggregate(counts=-COUNTS)),
    ("counts holds fractions", lambda: aggregate("trimmed-mean", COUNTS * 0.5)),
    ("codewords is torch.int64", lambda: aggregate(codewords=WORDS.long())),
    ("codewords .*not finite", lambda: aggregate(codewords=WORDS * NAN)),
    (r"counts has shape \(3, 8\) and codewords \(2, 5\)", lambda: aggregate(codewords=WORDS[:2])),
    ("has no options; leave out 'keep'", lambda: aggregate("mean", keep=0.5)),
    ("called 'kep': did you mean 'keep'", lambda: aggregate("trimmed-mean", kep=0.5)),
    ("keep is 0; expected a number above 0 and at most 1", lambda: aggregate("trimmed-mean", keep=0)),
    ("keep is nan", lambda: aggregate("coordinate-trimmed-mean", keep=NAN)),
    ("keep is the str '1'", lambda: aggregate("trimmed-mean", keep="1")),
    ("iterations is 1.5; expected an integer", lambda: aggregate("geometric-median", iterations=1.5)),
    ("scale is inf", lambda: aggregate("sign-vote", scale=INF)),
    ("<lambda> returned is None; expected a tensor", lambda: aggregate(lambda counts, codewords: None)),
    # make_codebook
    ("no codebook 'gausian': did you mean 'gaussian'", lambda: make_codebook("gausian")),
    ("codebook is None", lambda: make_codebook(None)),
    ("num_codewords is 0; expected an integer of at least 1", lambda: make_codebook(num_codewords=0)),
    ("num_codewords is 8.0", lambda: make_codebook(num_codewords=8.0)),
    ("num_codewords is True", lambda: make_codebook(num_codewords=True)),
    ("codeword_length is -4", lambda: make_codebook(codeword_length=-4)),
    ("codeword_length is 10000000", lambda: make_codebook(codeword_length=10**7)),
    ("rng is 7", lambda: make_codebook(rng_=7)),
    ("codeword_length = 3: two-bases needs a power of two", lambda: make_codebook("two-bases", 4, 3)),
    ("only 2 different rows", lambda: make_codebook("bernoulli", 4, 1)),
    # make_decoder
    ("no decoder 'gmp': did you mean 'gamp'", lambda: aircomp.make_decoder("gmp", BOOK)),
    ("decoder is None; expected one of amp-da", lambda: aircomp.make_decoder(None, BOOK)),
    ("codebook is None", lambda: aircomp.make_decoder("gamp", None)),
    (r"codebook is torch.float32 \[8\]", lambda: aircomp.make_decoder("gamp", BOOK[0])),
    ("codebook is torch.int64", lambda: aircomp.make_decoder("omp", BOOK.long())),
    ("codebook .*not finite", lambda: aircomp.make_decoder("nnls", BOOK * NAN)),
    ("codebook rows must have unit norm", lambda: aircomp.make_decoder("gamp", 2 * BOOK)),
    ("no snr_reference 'rond'", lambda: aircomp.make_decoder("gamp", BOOK, snr_reference="rond")),
    ("no setting 'iteration': did you mean iterations", lambda: aircomp.make_decoder("gamp", BOOK, iteration=3)),
    ("'omp' has no options; leave out 'steps'", lambda: aircomp.make_decoder("omp", BOOK, steps=3)),
    ("damping = 'x': input should be a valid number", lambda: aircomp.make_decoder("amp-da", BOOK, damping="x")),
    (
        "max_iterations = 2.5: input should be a valid integer",
        lambda: aircomp.make_decoder("amp-da", BOOK, max_iterations=2.5),
    ),
    ("agreement = nan: input should be", lambda: aircomp.make_decoder("gamp", BOOK, agreement=NAN)),
    ("layer is the str", lambda: aircomp.make_decoder("gamp-net", layer().codebook, layer="runs/layer")),
    ("only with the codebook it was trained with", lambda: aircomp.make_decoder("gamp-net", BOOK, layer=layer())),
    # make_scheme
    ("there is no scheme 'gammp': did you mean 'gamp'", lambda: make_scheme("gammp")),
    ("settings is None; expected the settings of a scheme, or its name", lambda: make_scheme(None)),
    ("settings is the dict", lambda: make_scheme({"num_codewords": 3})),
    ("context is 5.0; expected a SchemeContext", lambda: make_scheme("gamp", 5.0)),
    ("seed is -1", lambda: make_scheme("gamp", SchemeContext(seed=-1))),
    ("repeat.*= 'x'", lambda: make_scheme(SchemeSettings(name="gamp", repeat="x"))),
    ("side_information = 'all'", lambda: make_scheme(SchemeSettings(name="gamp", side_information="all"))),
    ("two schemes are called 'gamp'", lambda: second_gamp()),
    ("the scheme 'new' needs 'quiet'; expected words that begin", lambda: aircomp.scheme("new", **ABOUT)),
    (
        "the package has no layer for 64 codewords of 64 channel uses",
        lambda: make_scheme(SchemeSettings(name="gamp-net", quantize=QuantizeSettings(num_codewords=64))),
    ),
    # simulate
    ("no preset 'digit': did you mean 'digits'", lambda: simulate("digit")),
    ("preset is 3; expected a preset's name", lambda: simulate(3)),
    ("preset is None", lambda: simulate(None)),
    ("nowhere.toml does not exist", lambda: simulate(Path("nowhere.toml"))),
    ("no setting 'round': did you mean rounds", lambda: simulate(round=3)),
    (r"no setting 'rounds\.x'", lambda: simulate(**{"rounds.x": 3})),
    ("rounds = -1", lambda: simulate(rounds=-1)),
    ("rounds = nan", lambda: simulate(rounds=NAN)),
    ("seed = -1: expected 0 to", lambda: simulate(seed=-1)),
    ("seed = 'x'", lambda: simulate(seed="x")),
    ("channel.snr_db = nan", lambda: simulate(uplink="gamp", snr_db=NAN)),
    ("channel.snr_db was given but has no effect", lambda: simulate(uplink="ideal", snr_db=3.0)),
    ("uplink.layer was given but has no effect", lambda: simulate(uplink="gamp", layer="runs/layer")),
    ("local.learning_rate = inf", lambda: simulate(**{"local.learning_rate": INF})),
    ("no dataset 'digit'", lambda: simulate(**{"data.name": "digit"})),
    ("model.name = 'resnt': did you mean 'resnet'", lambda: simulate(**{"model.name": "resnt"})),
    ("uplink.name = 'amp': did you mean 'gamp'", lambda: simulate(uplink="amp")),
    ("aggregate.rule = 'men': did you mean 'mean'", lambda: simulate(aggregator="men")),
    ("uplink is 3; expected an object with the method broadcast", lambda: simulate(uplink=3)),
    ("uplink is the class Ideal; expected an object", lambda: simulate(uplink=Ideal)),
    ("uplink is the Empty", lambda: simulate(uplink=Empty())),
    ("aggregator is 3; expected a function", lambda: simulate(aggregator=3)),
    ("decoder is the Empty", lambda: simulate(decoder=Empty())),
    (
        "uplink.name was given but has no effect: the decoder is your own, .*Mute",
        lambda: simulate(uplink="gamp", decoder=Mute()),
    ),
    ("channel is the class Awgn", lambda: simulate(uplink="gamp", channel=Awgn)),
    ("uplink = 'ideal' has none", lambda: simulate(uplink="ideal", channel=Awgn(3.0))),
    ("decoder and an uplink of your own", lambda: simulate(uplink=Ideal(), decoder=Mute())),
    ("what the decoder returned is None; expected an aircomp.Decoded", lambda: simulate(decoder=Mute())),
    ("received has shape .*expected", lambda: simulate(uplink="gamp", channel=Short())),
    ("what the scheme's decode returned is torch.float32", lambda: simulate(uplink=Wrong())),
    ("what the scheme's encode returned is torch.float32", lambda: simulate(uplink=Unencoded())),
    ("before is 0.5; expected a function of an update", lambda: simulate(before=0.5)),
    (r"before returned None for torch.float32 \[", lambda: simulate(before=lambda update: None)),
    ("after returned torch.float32 .* for", lambda: simulate(after=lambda update: update[1:])),
    ("on_round is the str", lambda: simulate(on_round="print")),
    ("out is 3; expected a path", lambda: simulate(out=3)),
    ("out is the str ''; expected a path", lambda: simulate(out="")),
    ("data_dir is 3", lambda: simulate(data_dir=3)),
    ("resume was given without out", lambda: simulate(resume=True)),
    ("overwrite was given without out", lambda: simulate(overwrite=True)),
    ("model is the class Linear; expected a torch.nn.Module", lambda: simulate(model=nn.Linear)),
    ("model is the str 'resnet'", lambda: simulate(model="resnet")),
    (
        r"the model fails on a batch of \(35, 1, 8, 8\) of float32 \(RuntimeError: mat1",
        lambda: simulate(model=nn.Linear(3, 10)),
    ),
    ("dataset is the str 'digits'; expected an ImageData, or a pair", lambda: simulate(dataset="digits")),
    ("dataset is the tuple", lambda: simulate(dataset=(1, 2, 3))),
    ("the train dataset is empty or has no length", lambda: simulate(dataset=([], []))),
    ("images hold values that are not finite", lambda: simulate(dataset=pair(train=torch.full((9, 1, 8, 8), NAN)))),
    (
        r"the test images are \[1, 4, 4\]",
        lambda: simulate(dataset=pair(test=torch.zeros(9, 1, 4, 4, dtype=torch.uint8))),
    ),
    # collect, pretrain, evaluate, cost
    ("out is None; expected a path", lambda: collect("digits", None)),
    ("uplink = 'gamp': a collection has perfect aggregation", lambda: collect("digits", "runs/never", uplink="gamp")),
    ("channel.snr_db was given", lambda: collect("digits", "runs/never", snr_db=3.0)),
    ("directories is the str 'nowhere'; expected a list", lambda: train("nowhere")),
    ("directories is empty", lambda: train([])),
    ("directories is None; expected a path", lambda: train([None])),
    ("nowhere", lambda: train()),
    ("settings is the str 'short'; expected PretrainSettings", lambda: train(settings="short")),
    ("batches_per_step is 0", lambda: train(batches_per_step=0)),
    ("device is the str 'gpu'", lambda: train(device="gpu")),
    ("plan is None", lambda: evaluate(Path("nowhere"), None)),
    ("directory is 3", lambda: evaluate(3, None)),
    ("no decoder 'gmp'", lambda: plan(decoders=["gmp"])),
    ("decoders is empty", lambda: plan(decoders=[])),
    ("decoders is the str 'gamp'", lambda: plan(decoders="gamp")),
    (r"snr_db is the list \[\]; expected at least one number", lambda: plan(snr_db=[])),
    ("snr_db is nan", lambda: plan(snr_db=[NAN])),
    ("snr_db is 5.0; expected at least one number", lambda: plan(snr_db=5.0)),
    ("slots is -1; expected an integer of at least 1", lambda: plan(num_slots=-1)),
    ("seed is -3", lambda: plan(seed=-3)),
    ("no codebook 'gauss'", lambda: plan(codebook="gauss")),
    ("a layer of form paper was given, but no decoder takes it", lambda: plan(layer="paper")),
    ("num_params is 0", lambda: cost(num_params=0)),
    ("num_params is nan", lambda: cost(num_params=NAN)),
    ("num_active is -1", lambda: cost(num_active=-1)),
    ("scheme is the str 'ideal'; expected an object with the method broadcast", lambda: cost(uplink="ideal")),
    ("bandwidth_hz is nan; expected a number above 0", lambda: Radio(NAN)),
    ("bandwidth_hz is 0", lambda: Radio(0)),
    ("radio is 5", lambda: cost(radio=5)),
    ("make is None; expected a function of a codebook", lambda: check_decoder(None)),
    ("what make returned is the Empty", lambda: check_decoder(lambda codebook: Empty())),
    # the layer
    ("nowhere/layer.json does not exist", lambda: aircomp.CommunicationLayer.load("nowhere")),
    ("directory is 3; expected a path", lambda: aircomp.CommunicationLayer.load(3)),
    ("no snr_reference 'slots'", lambda: aircomp.CommunicationLayer.load(snr_reference="slots")),
    ("device is the str 'tpu'", lambda: aircomp.CommunicationLayer.load(device="tpu")),
    (r"device is \S*9223372036854775808", lambda: aircomp.CommunicationLayer.load(device=2**63)),
    ("codebook is None", lambda: aircomp.CommunicationLayer(None, layer().net)),
    ("net is None; expected an AmpDaNet or a GampNet", lambda: aircomp.CommunicationLayer(layer().codebook, None)),
    ("no snr_reference 'each'", lambda: layer().decoder(snr_reference="each")),
    ("directory is None; expected a path", lambda: layer().save(None)),
    (r"received .*expected \[slots, 64\]", lambda: decode(torch.zeros(4, 63))),
    ("received holds values that are not finite", lambda: decode(torch.full((4, 64), NAN))),
    ("popularity .*expected \\[128\\]", lambda: decode(popularity=torch.ones(3))),
    ("popularity is not a distribution", lambda: decode(popularity=-torch.ones(128))),
]


@pytest.mark.parametrize(("message", "call"), CALLS, ids=[f"{i}-{m[:40]}" for i, (m, _) in enumerate(CALLS)])
def test_a_wrong_call_is_one_sentence_that_names_the_argument(message, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AirCompError, match=message) as caught:
        call()
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 400
    assert not list(tmp_path.iterdir())  # refused before anything was written


def test_there_are_enough_of_them():
    assert len(CALLS) >= 85
