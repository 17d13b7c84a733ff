import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aircomp.aggregation.readout import not_shrunk, towards_sum
from aircomp.aggregation.rules import aggregate, aggregator_names
from aircomp.channel.awgn import Awgn, add_noise, noise_variance, superpose
from aircomp.decoders.amp.gamp import Gamp
from aircomp.decoders.rounding import round_to_sum
from aircomp.device.feedback import remember
from aircomp.device.settings import FeedbackSettings
from aircomp.encode.codebook import count, make_codebook
from aircomp.errors import ArtefactError, ConfigError
from aircomp.link import Link, broadcast, carry, communicate, encode, sound
from aircomp.quantize.codebook import build, nearest
from aircomp.quantize.fragment import split
from aircomp.quantize.settings import QuantizeSettings
from aircomp.schemes.base import SchemeContext
from aircomp.schemes.cost import dry_run
from aircomp.schemes.digital.counting import with_decoder
from aircomp.schemes.digital.decoders import decoder_names, make_decoder, trained_decoders
from aircomp.schemes.digital.link import Digital
from aircomp.schemes.digital.repetition import SNR_DB
from aircomp.schemes.outputs import Mean, aggregate_output
from aircomp.schemes.registry import make_scheme
from aircomp.schemes.settings import SchemeSettings
from helpers.schemes import uses_air

SMALL = QuantizeSettings(fragment_length=4, num_codewords=16)


def heavy_tailed(devices, params, rng):
    return torch.randn(devices, params, generator=rng) ** 3


def small_link(name="gamp", snr_db=200.0, snr_reference="round", *, decoder=None, context=None, **options):
    if uses_air(name):
        options["codebook"] = "two-bases"
    if name != "ideal":
        options |= {"quantize": SMALL, "codeword_length": 16}
    settings, context = (
        SchemeSettings(name=name, **options),
        SchemeContext(snr_reference=snr_reference, **(context or {})),
    )
    scheme = make_scheme(settings, context) if decoder is None else with_decoder(decoder, "mine", settings, context)
    return Link(scheme, Awgn(snr_db, snr_reference))


def send(link, messages, base):
    return communicate(link, base, messages, {}, 0)


def diagnosis(link, exchange):
    return link.scheme.diagnose(exchange.sent, exchange.broadcast, exchange.output)


@pytest.mark.parametrize("name", ["perfect", *(n for n in decoder_names() if n not in ("genie", *trained_decoders()))])
def test_without_noise_the_link_delivers_the_mean_of_the_quantised_messages(name, rng):
    messages, base = heavy_tailed(5, 403, rng), heavy_tailed(1, 403, rng)[0]
    exchange = send(small_link(name), messages, base)
    # a sum of five codewords in another order: float32 rounding of entries up to about 30
    torch.testing.assert_close(exchange.update, exchange.sent.reconstruction.mean(dim=0), rtol=1e-5, atol=1e-5)
    assert round(exchange.output.num_active_hat) == 5


def test_the_air_carries_the_sum_of_the_devices_codewords(rng):
    messages, base = heavy_tailed(5, 403, rng), heavy_tailed(1, 403, rng)[0]
    codebook = make_codebook("gaussian", 16, 8, rng=rng)
    uplink = Digital(
        SchemeSettings(name="gamp", quantize=SMALL), SchemeContext(), codebook, make_decoder("gamp", codebook), "mine"
    )
    sent, received = on_the_air(Link(uplink, Awgn(float("inf"))), messages, base)
    expected = sum(codebook[indices] for indices in sent.signal.indices)
    torch.testing.assert_close(received, expected, rtol=1e-5, atol=1e-6)  # float32 sums of five terms


def test_the_base_station_joins_the_counts_with_its_own_codeword(rng):
    messages, base = heavy_tailed(3, 403, rng), heavy_tailed(1, 403, rng)[0]
    alone = send(small_link("perfect"), messages, base)
    joined = send(small_link("perfect", context={"include_base_station": True}), messages, base)
    own = joined.private.quantizer.codebook[joined.private.quantizer.base_indices].flatten()[:403]
    alone, joined = (aggregate_output(e.output, "mean", readout="integers") for e in (alone, joined))
    torch.testing.assert_close(joined, (3 * alone + own) / 4, rtol=1e-5, atol=1e-5)  # float32 sums of four terms


def test_diagnosis_reports_perfect_numbers_for_a_perfect_link(rng):
    link = small_link("perfect")
    measured = diagnosis(link, send(link, heavy_tailed(4, 403, rng), heavy_tailed(1, 403, rng)[0]))
    assert (measured["count_accuracy"], measured["update_nmse"], measured["pupe"]) == (1.0, 0.0, 0.0)


def test_noise_costs_accuracy(rng):
    messages, base = heavy_tailed(8, 4003, rng), heavy_tailed(1, 4003, rng)[0]
    accuracies = []
    for snr_db in (-10.0, 5.0, 30.0):
        link = small_link("gamp", snr_db)
        accuracies.append(diagnosis(link, send(link, messages, base))["count_accuracy"])
    assert accuracies[0] < accuracies[1] < accuracies[2]


def test_the_cost_is_the_papers(rng):
    air = dry_run(make_scheme("amp-da"), 269_722, 1)
    assert (air.num_slots, air.channel_uses) == (13_487, 863_168)
    assert float(air.energy) == pytest.approx(13_487, rel=1e-5)  # float32 codewords of energy one


def test_codebooks_of_different_sizes_are_refused(rng):
    codebook = make_codebook("gaussian", 8, 8, rng=rng)
    with pytest.raises(ConfigError, match="num_codewords = 16, but the random-access codebook has 8"):
        Digital(
            SchemeSettings(name="gamp", quantize=SMALL),
            SchemeContext(),
            codebook,
            make_decoder("gamp", codebook),
            "mine",
        )


def test_a_rule_that_the_scheme_cannot_serve_is_refused():
    mean_only = Mean(mean=torch.ones(3), num_active_hat=2.0)
    assert torch.equal(aggregate_output(mean_only, "mean"), torch.ones(3))
    with pytest.raises(ConfigError, match="offers a mean"):
        aggregate_output(mean_only, "majority-vote")


def repeated(repeat, name="gamp", snr_db=200.0, **options):
    return small_link(name, snr_db, repeat=repeat, **options)


def on_the_air(link, messages, base):
    """Return what is sent and what the antenna hears."""
    announced, _ = broadcast(link, base, {}, 0)
    csi = sound(link, len(messages), announced, 0)
    sent = encode(link, messages, announced, csi, 0)
    return sent, carry(link, sent, csi, 0)[0]


def test_every_slot_once_gives_the_bits_of_the_stages_one_after_the_other(rng):
    messages, base = heavy_tailed(5, 403, rng), heavy_tailed(1, 403, rng)[0]
    exchange, link = send(repeated(1, snr_db=3.0), messages, base), small_link(snr_db=3.0)
    quantizer = build(split(base, 4), SMALL, rng=link.rng("codebook", 0))
    indices = nearest(split(messages, 4), quantizer.codebook)
    signal = superpose(count(indices, 16), link.scheme.codebook)
    received = add_noise(signal, noise_variance(signal, 3.0, "round", num_active=5), rng=link.rng("noise", 0))
    decoded = link.scheme.decoder.decode(
        received, quantizer.popularity, bs_indices=quantizer.base_indices, quant_codebook=quantizer.codebook
    )
    assert torch.equal(exchange.sent.signal.indices, indices)
    assert torch.equal(exchange.output.counts, decoded.counts)
    assert torch.equal(exchange.output.soft_counts, decoded.mean)
    assert exchange.output.asked is None


@pytest.mark.parametrize("repeat", [2, 4])
def test_repeated_slots_meet_the_noise_of_single_ones_copy_by_copy(repeat, rng):
    messages, base = heavy_tailed(5, 203, rng), heavy_tailed(1, 203, rng)[0]
    link = repeated(repeat, snr_db=2.0)
    sent, received = on_the_air(link, messages, base)
    chosen, codebook = sent.signal.indices, link.scheme.codebook
    signals = [sum(codebook[int(device[slot])] for device in chosen) for slot in range(chosen.shape[1])]
    # one noise for the round, set by the power of what is in the air; sending it again changes no power
    noise_var = sum(float(s.double().square().sum()) for s in signals) / (16 * len(signals)) / 10**0.2
    noise = link.rng("noise", 0)
    row = 0
    for signal in signals:
        for _ in range(repeat):
            expected = signal + math.sqrt(noise_var) * torch.randn(16, generator=noise)
            torch.testing.assert_close(received[row], expected, rtol=1e-5, atol=1e-5)  # float32 sums of six terms
            row += 1
    assert row == len(received) == 51 // repeat * repeat  # 203 parameters in fragments of four fill 51 slots


@pytest.mark.parametrize("name", [n for n in decoder_names() if n not in ("genie", *trained_decoders())])
def test_without_noise_a_repeated_link_delivers_the_mean_of_what_was_asked_for(name, rng):
    messages, base = heavy_tailed(5, 403, rng), heavy_tailed(1, 403, rng)[0]
    exchange = send(repeated(2, name), messages, base)
    # a sum of five codewords in another order: float32 rounding of entries up to about 30
    torch.testing.assert_close(exchange.update, exchange.sent.reconstruction.mean(dim=0), rtol=1e-5, atol=1e-5)
    assert len(exchange.broadcast.values["asked"]) == 50  # of 101 slots


def divided(counts, codewords):
    return counts.to(codewords.dtype) @ codewords / counts.sum(dim=1, keepdim=True)  # an empty slot would give NaN


@pytest.mark.parametrize("rule", [*aggregator_names(), divided])
@pytest.mark.parametrize("own", [False, True])
def test_every_rule_gives_zero_where_nothing_was_asked_for(rule, own, rng):
    messages, base = heavy_tailed(5, 403, rng), heavy_tailed(1, 403, rng)[0]
    exchange = send(repeated(4, snr_db=5.0, context={"include_base_station": own}), messages, base)
    update = split(aggregate_output(exchange.output, rule, base=base), 4)
    asked = torch.zeros(101, dtype=torch.bool).index_fill(0, exchange.broadcast.values["asked"].long(), True)
    assert torch.isfinite(update).all()
    assert not update[~asked].any()
    assert update[asked].any()


def test_the_base_station_asks_for_its_own_most_energetic_slots_and_quantises_these_alone(rng):
    base = heavy_tailed(1, 400, rng)[0]
    link = repeated(4, context={"slot_layers": torch.arange(100)})
    announced, private = broadcast(link, base, {}, 0)
    asked = announced.values["asked"].long()
    energy = split(base, 4).square().sum(dim=1)
    unasked = energy.index_fill(0, asked, 0.0)
    assert energy[asked].min() >= unasked.max()
    assert torch.equal(private.slot_layers, asked)
    chosen = torch.bincount(private.quantizer.base_indices, minlength=16) / 25
    torch.testing.assert_close(private.quantizer.popularity, chosen, rtol=0, atol=1e-7)  # one division each


@given(seed=st.integers(0, 999), repeat=st.integers(1, 6), num_params=st.integers(24, 60))
@settings(deadline=None, max_examples=50)
def test_what_is_not_asked_for_stays_in_the_error_memory(seed, repeat, num_params):
    rng = torch.Generator().manual_seed(seed)
    # small whole numbers: differences and sums are exact
    messages, base = torch.randint(-9, 10, (4, num_params), generator=rng).float().split([3, 1])
    exchange = send(repeated(repeat), messages, base[0])
    asked = exchange.broadcast.values.get("asked")
    asked = range(-(-num_params // 4)) if asked is None else asked.tolist()
    for message, reconstruction in zip(messages, exchange.sent.reconstruction, strict=True):
        memory = remember(message, reconstruction, FeedbackSettings(), update_norm=1.0)
        assert torch.equal(memory + reconstruction, message)
        for entry in range(num_params):
            if entry // 4 not in asked:
                assert reconstruction[entry] == 0
                assert memory[entry] == message[entry]


def test_copies_help_where_noise_costs_accuracy(rng):
    messages, base = heavy_tailed(8, 4003, rng), heavy_tailed(1, 4003, rng)[0]
    accuracies = []
    for repeat in (1, 2, 4):
        link = repeated(repeat, snr_db=-3.0)
        accuracies.append(diagnosis(link, send(link, messages, base))["count_accuracy"])
    assert accuracies[0] < accuracies[1] < accuracies[2]


class Listener:
    """Keeps what a decoder is told."""

    def __init__(self, codebook):
        self.codebook, self.told, self.decoder = codebook, {}, make_decoder("gamp", codebook)

    def decode(self, received, popularity, **told):
        self.told = told | {"received": received}
        return self.decoder.decode(received, popularity, noise_var=told["noise_var"])


@pytest.mark.parametrize(("reference", "repeat", "told"), [("round", 4, True), ("slot", 4, False), ("round", 1, False)])
def test_the_decoder_is_told_the_noise_that_copies_reveal_if_it_is_one_for_all(reference, repeat, told, rng):
    messages, base = heavy_tailed(8, 4003, rng), heavy_tailed(1, 4003, rng)[0]
    listener = Listener(make_codebook("two-bases", 16, 16, rng=rng))
    link = small_link("gamp", -3.0, reference, decoder=listener, repeat=repeat)
    exchange = send(link, messages, base)
    power = float(superpose(count(exchange.sent.signal.indices, 16), listener.codebook).double().square().mean())
    assert listener.told["received"].shape == (1001 // repeat, 16)
    if told:  # 250·16·3 degrees of freedom: a deviation of 1.3 %, four of them
        assert listener.told["noise_var"] == pytest.approx(power * 10**0.3 / 4, rel=0.052)
    else:
        assert listener.told["noise_var"] is None
    # with one copy it is the decoder's estimate, which is rough
    assert exchange.output.diagnostics["snr_db_hat"] == pytest.approx(-3.0, abs=1.5)
    if repeat == 1:  # nothing chooses how often to send by it
        assert SNR_DB not in exchange.memory
    else:
        assert float(exchange.memory[SNR_DB]) == exchange.output.diagnostics["snr_db_hat"]


@pytest.mark.parametrize("value", [torch.zeros(2), torch.tensor(1), torch.zeros(0)])
def test_a_memory_that_makes_no_sense_is_refused(value, rng):
    with pytest.raises(ArtefactError, match=r"the scheme remembers snr_db as .* expected one number"):
        broadcast(repeated("auto"), heavy_tailed(1, 403, rng)[0], {SNR_DB: value}, 0)


def test_auto_follows_the_snr_it_is_told(rng):
    link, base = repeated("auto"), heavy_tailed(1, 4003, rng)[0]
    memories = [{}, {SNR_DB: torch.tensor(20.0)}, {SNR_DB: torch.tensor(-20.0)}]
    repeats = [int(broadcast(link, base, memory, 0)[0].values["repeat"]) for memory in memories]
    assert repeats[:2] == [1, 1]
    assert repeats[2] > 1


@pytest.mark.parametrize(("repeat", "slots"), [(1, 13_487), (2, 13_486), (8, 13_480), ("auto", 13_487)])
def test_repetition_never_costs_more_air(repeat, slots):
    air = dry_run(make_scheme(SchemeSettings(name="gamp", repeat=repeat)), 269_722, 1)
    assert (air.num_slots, air.channel_uses) == (slots, 64 * slots)
    assert float(air.energy) == pytest.approx(slots, rel=1e-5)  # float32 codewords of energy one


def test_diagnosis_of_a_repeated_link_looks_at_the_asked_slots_only(rng):
    link = repeated(4)
    measured = diagnosis(link, send(link, heavy_tailed(4, 403, rng), heavy_tailed(1, 403, rng)[0]))
    assert (measured["count_accuracy"], measured["update_nmse"], measured["repeat"]) == (1.0, 0.0, 4.0)


def test_a_readout_forms_the_mean_of_soft_counts_or_keeps_the_norm_of_the_integers(rng):
    messages, base = heavy_tailed(8, 403, rng), heavy_tailed(1, 403, rng)[0]
    reception = send(repeated(2, snr_db=0.0), messages, base).output
    hard, soft, norm = (aggregate_output(reception, "mean", readout=r) for r in ("integers", "soft", "norm"))
    devices = reception.soft_counts.sum(dim=1).mean()  # the round's, not the slot's
    mean = towards_sum(reception.soft_counts, float(devices)) / devices
    expected = torch.zeros(101, 4).index_copy(0, reception.asked, mean @ reception.codewords)
    # float32 averages of codewords with entries up to about 30
    torch.testing.assert_close(soft, expected.flatten()[:403], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norm.norm(), hard.norm(), rtol=1e-5, atol=0)
    torch.testing.assert_close(norm / norm.norm(), soft / soft.norm(), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(hard, soft)


def test_what_is_open_in_a_slot_moves_towards_the_sum():
    sure = torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]])
    assert torch.equal(towards_sum(sure, 4.0), sure)
    half = torch.tensor([[1.0, 0.5, 0.5], [0.9, 0.5, 2.0]])
    moved = towards_sum(half, 3.0)
    # gaps of 1 and -.4 over variances (0, 1/4, 1/4) and (.09, .25, 0), of which 1 / (1 + v/3) is taken
    expected = half + torch.tensor([[0, 0.5, 0.5], [0.09, 0.25, 0]]) * torch.tensor(
        [[1 / (1 + 0.5 / 3)], [-0.4 / 0.34 / (1 + 0.34 / 3)]]
    )
    torch.testing.assert_close(moved, expected)
    assert (towards_sum(torch.tensor([[0.1, 0.2, 4.0]]), 1.0) >= 0).all()


def test_the_unbiased_readout_is_as_long_as_the_truth_along_it(rng):
    # half of the slots are known, of the others nothing but the popularity: an exact posterior mean
    slots, devices, words = 20_000, 8, heavy_tailed(16, 5, rng)
    popularity = torch.softmax(torch.randn(16, generator=rng), 0)
    words = words - popularity @ words  # what is known of every slot beforehand is nothing
    picks = torch.multinomial(popularity.expand(slots, -1), devices, replacement=True, generator=rng)
    counts = torch.zeros(slots, 16).scatter_add_(1, picks, torch.ones(slots, devices))
    known = torch.rand(slots, 1, generator=rng) < 0.5
    soft_counts = torch.where(known, counts, devices * popularity)
    truth, soft = (aggregate("mean", c, words) for c in (counts, soft_counts))
    unbiased = not_shrunk(soft, soft_counts, words, aggregate("mean", round_to_sum(soft_counts, devices), words))
    shares = [float((u * truth).sum() / truth.square().sum()) for u in (soft, unbiased)]
    assert shares[0] < 0.55
    assert shares[1] == pytest.approx(
        1, abs=0.03
    )  # heavy-tailed words: energies of 20,000 slots vary by about a percent
    agreed = torch.zeros(slots, 16).scatter_(1, picks[:, :1], float(devices))
    update = aggregate("mean", agreed, words)
    assert torch.equal(
        not_shrunk(update, agreed, words, update), update
    )  # certain, more alike than independent devices
    torch.testing.assert_close(not_shrunk(update / 2, agreed / 2, words, update), 2 * update)  # a quarter of the energy


def test_a_readout_changes_nothing_where_counts_are_exact_and_survives_an_empty_update(rng):
    exact = send(small_link("ideal"), heavy_tailed(3, 40, rng), heavy_tailed(1, 40, rng)[0]).output
    for readout in ("soft", "norm", "unbiased"):
        assert torch.equal(aggregate_output(exact, "mean", readout=readout), aggregate_output(exact, "mean"))
    nothing = send(small_link("perfect"), torch.zeros(3, 40), torch.zeros(40)).output
    for readout in ("soft", "norm", "unbiased"):
        assert not aggregate_output(nothing, "mean", readout=readout).any()
    emptied = replace(nothing, counts=0 * nothing.counts, soft_counts=0 * nothing.soft_counts)
    for readout in ("norm", "unbiased"):
        assert not aggregate_output(emptied, "mean", readout=readout).any()


def test_the_readout_is_unbiased_for_the_mean_and_integers_for_other_rules(rng):
    reception = send(repeated(2, snr_db=0.0), heavy_tailed(8, 403, rng), heavy_tailed(1, 403, rng)[0]).output
    for rule, readout in (("mean", "unbiased"), ("majority-vote", "integers"), (divided, "integers")):
        assert torch.equal(aggregate_output(reception, rule), aggregate_output(reception, rule, readout=readout))
    integers = aggregate_output(reception, "mean", readout="integers")
    assert not torch.allclose(aggregate_output(reception, "mean"), integers)


@pytest.mark.parametrize("rule", ["trimmed-mean", divided])
def test_rules_that_need_integers_refuse_soft_counts(rule, rng):
    output = send(small_link(), heavy_tailed(3, 40, rng), heavy_tailed(1, 40, rng)[0]).output
    with pytest.raises(ConfigError, match=r"aggregate\.readout = 'soft' is for the mean, not for '(trimmed|divided)"):
        aggregate_output(output, rule, readout="soft")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("both", {"slot_layers", "bs_indices"}), ("layer", {"slot_layers"}), ("own", {"bs_indices"}), ("none", set())],
)
def test_the_decoder_is_told_what_was_asked_for(kind, expected):
    heard = {}

    class Listener(Gamp):
        def decode(self, received, popularity, **known):
            heard.update(known)
            return super().decode(received, popularity)

    link = small_link(context={"slot_layers": torch.arange(100) // 10}, side_information=kind)
    link.scheme.decoder = Listener(link.scheme.codebook)
    rng = torch.Generator().manual_seed(0)
    width = 100 * SMALL.fragment_length
    send(link, torch.randn(5, width, generator=rng), torch.randn(width, generator=rng))
    assert {name for name in ("slot_layers", "bs_indices") if heard[name] is not None} == expected
