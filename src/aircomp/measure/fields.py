"""Every field of a result: its heading, its unit and what it means, in this one place.

Records of a round (`metrics.jsonl`), rows of results (`result.json`), columns of tables, axes of figures and TensorBoard's
tags share these names; `docs/reference/fields.md` shows them.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """What one field of a result is."""

    heading: str
    meaning: str
    """One sentence."""
    unit: str = ""

    @property
    def label(self) -> str:
        """Heading of a column and title of an axis, with the unit."""
        return f"{self.heading} ({self.unit})" if self.unit else self.heading


FIELDS = {
    "run": Field("run", "The directory of a run, by the end of its path."),
    "decoder": Field("decoder", "The name of the decoder."),
    "uplink": Field("uplink", "The name of the uplink scheme."),
    "contender": Field("contender", "What is compared."),
    "axis": Field("against", "What a challenge varies."),
    "value": Field("value", "Its value."),
    "codebook": Field("codebook", "The kind of random-access codebook."),
    "layer": Field("layer", "The name of a trained layer of the package."),
    "form": Field("form", "Which network a layer has: the paper's, the authors', or ours."),
    "num_codewords": Field("number of codewords", "How many codewords the random-access codebook has."),
    "codeword_length": Field("uses of a codeword", "How many real channel uses a codeword takes."),
    "fewest_devices": Field("fewest devices", "The fewest active devices that a layer was trained with."),
    "most_devices": Field("most devices", "The most active devices that a layer was trained with."),
    "num_weights": Field("weights", "How many weights the network of a layer has."),
    "count_accuracy_0db": Field("count accuracy at 0 dB", "The count accuracy on held-out rounds at 0 dB."),
    "count_accuracy_5db": Field("count accuracy at 5 dB", "The count accuracy on held-out rounds at 5 dB."),
    "count_accuracy_10db": Field("count accuracy at 10 dB", "The count accuracy on held-out rounds at 10 dB."),
    "known": Field("known, and receiver", "What must be known of the channel, and which receiver hears."),
    "antennas": Field("antennas", "How many antennas the base station has."),
    "snr_db": Field("SNR", "The signal-to-noise ratio; `snr_reference` says of what.", "dB"),
    "snr_reference": Field("SNR refers to", "What the SNR refers to: a slot, a round, or what a device transmits."),
    "seeds": Field("seeds", "How many seeds the mean is of; `<field>_std` is the standard deviation over them."),
    "round": Field("round", "The number of the round, from one."),
    "rounds": Field("rounds", "How many rounds were run or decoded."),
    "test_accuracy_last5": Field(
        "test accuracy, last five", "The mean test accuracy of the last five evaluated rounds, which tables compare."
    ),
    "test_accuracy": Field("test accuracy", "The share of test images classified rightly at the last evaluation."),
    "best_test_accuracy": Field("best test accuracy", "The highest test accuracy of all evaluated rounds."),
    "stability": Field(
        "stability", "The standard deviation of the test accuracy over the last ten evaluated rounds; less is steadier."
    ),
    "test_loss": Field("test loss", "The mean cross-entropy on the test images.", "nats"),
    "count_accuracy": Field(
        "count accuracy",
        "One minus the ℓ1 error of the integer counts over their sum, clipped to [0, 1] in each slot, averaged over slots.",
    ),
    "round_count_accuracy": Field(
        "count accuracy, whole round", "The count accuracy over all slots of the round of which one slot is shown."
    ),
    "count_nmse": Field(
        "count NMSE", "The squared error of the soft counts over the squared norm of the counts, over all slots."
    ),
    "update_nmse": Field(
        "update NMSE",
        "The squared error of the decoded update, over the squared norm of what was sent; a simulated run counts integers.",
    ),
    "update_nmse_hard": Field("update NMSE, integer counts", "The same from integer counts."),
    "update_nmse_soft": Field("update NMSE, soft counts", "The same from soft counts."),
    "posterior_count_accuracy": Field(
        "posterior, count accuracy", "The count accuracy of the median of samples of the posterior."
    ),
    "below_posterior": Field("below the posterior", "The count accuracy of the posterior minus the decoder's."),
    "chains_disagree": Field(
        "chains disagree", "How far the chains of samples end apart, over the number of devices.", "share"
    ),
    "count_accuracy_limit": Field(
        "count accuracy, limit", "The highest count accuracy that `signal_bits` allow to any decoder."
    ),
    "entropy_bits": Field("the counts hold", "The entropy of a slot's counts if devices choose independently.", "bits"),
    "signal_bits": Field("the signal tells at most", "A bound on the information between counts and signal.", "bits"),
    "capacity_bits": Field("capacity", "What the channel can carry in a slot at most.", "bits"),
    "num_active_mae": Field(
        "error of K", "The mean absolute error of the estimated number of active devices before rounding.", "devices"
    ),
    "challenge": Field("challenge", "The question that `aircomp arena` asks of schemes."),
    "winner": Field("winner", "The scheme with the best value."),
    "won_with": Field("its value", "The value of the winner."),
    "runner_up": Field("runner-up", "The scheme with the second best value."),
    "margin": Field(
        "margin", "By how much the winner beats the runner-up: decibels of an error, points of an accuracy."
    ),
    "margin_low": Field("at least", "The lower end of the margin's interval."),
    "margin_high": Field("at most", "The upper end of the margin's interval."),
    "verdict": Field("verdict", "`wins` if the margin's interval leaves out zero, `tie` if not."),
    "our_best": Field("our best", "The best scheme of this package: digital, or the hybrid."),
    "best_rival": Field("best of the others", "The best of all other schemes."),
    "our_margin": Field("our margin", "By how much our best scheme beats the best of the others."),
    "our_verdict": Field(
        "our verdict", "`wins` or `loses` if the interval of that margin leaves out zero, `tie` if not."
    ),
    "points": Field("points", "How many points a challenge has."),
    "winners": Field("best", "The schemes that are best somewhere, and at how many points of a challenge."),
    "our_lowest": Field("our lowest margin", "The margin of our best scheme where it does worst."),
    "our_highest": Field("our highest margin", "The margin of our best scheme where it does best."),
    "our_verdicts": Field("our verdicts", "At how many points our best scheme wins, loses or ties."),
    "reason": Field("reason", "Why a scheme cannot serve a challenge, or why a job failed."),
    "phase_deg": Field("phase error", "The standard deviation of the devices' phases.", "degrees"),
    "csi_correlation": Field("correlation of belief and channel", "How well devices know their channel; 1 is exactly."),
    "power_db": Field("power error", "The standard deviation of the devices' power.", "dB"),
    "timing": Field("largest delay", "How late a device can be, in complex channel uses.", "symbols"),
    "frequency": Field("largest frequency offset", "How far a carrier can be off.", "turns per symbol"),
    "path_loss": Field("path-loss exponent", "The exponent by which power falls with distance; 0: all are alike."),
    "clip_db": Field("amplifier's limit over its mean", "The power that amplifiers let pass at most.", "dB"),
    "burst_share": Field("slots with bursts", "The share of slots with louder noise.", "share"),
    "tail": Field("degrees of freedom of the noise", "Student's distribution: 1 is Cauchy's, many are Gaussian."),
    "lost": Field("lost slots", "The share of slots of which the base station hears nothing.", "share"),
    "adc_bits": Field("bits of the converter", "The bits of the base station's converter for a real channel use."),
    "attackers": Field("devices that send too loudly", "The share of devices with more power than agreed.", "share"),
    "spread_of_devices": Field("K varies around 10 by", "The most by which the number of devices differs.", "devices"),
    "num_active_total": Field("K, SNR of all together fixed", "How many devices share the SNR.", "devices"),
    "num_active_each": Field("K, SNR of each fixed", "How many devices there are; the SNR of all grows.", "devices"),
    "corrupted_fraction": Field(
        "corrupted devices", "The share of active devices that send something other than their update.", "share"
    ),
    "alpha": Field("Dirichlet concentration", "How alike the devices' data are; at 0.1 a device holds few classes."),
    "update_correlation": Field(
        "correlation of updates", "The mean cosine between the updates of two devices: 1 if all devices agree."
    ),
    "block_error_rate": Field("lost blocks", "The share of coded blocks that arrived with errors.", "share"),
    "vote_error": Field(
        "wrong votes", "The share of parameters where the decoded sign is not that of the majority.", "share"
    ),
    "sends": Field("sends", "What a device sends."),
    "offers": Field("offers", "What the base station gets: counts, vectors, a mean or a vote."),
    "needs_channel": Field(
        "channel", "What the scheme needs of the channel: none is used, signals in phase, or any channel."
    ),
    "paper": Field("paper", "Where the scheme comes from."),
    "pupe": Field("missed codewords", "The share of sent codewords that are missing from the decoded ones.", "share"),
    "num_slots": Field("slots of a round", "How many slots one round takes."),
    "slots": Field("slots", "How many slots were decoded."),
    "channel_uses": Field("channel uses", "How many real channel uses one round takes."),
    "channel_uses_per_parameter": Field(
        "channel uses per parameter", "Channel uses of a round over the number of model parameters."
    ),
    "air_seconds": Field("air time", "The time that one round occupies the air at the given bandwidth.", "s"),
    "round_seconds": Field(
        "a round", "The broadcast, the air time with its pilots, and two turnarounds, without training.", "s"
    ),
    "round_joules": Field("energy of a round", "What a device radiates in a round at the given power.", "J"),
    "path_loss_db": Field("path loss", "How much devices may lose on the way to arrive with 10 dB together.", "dB"),
    "energy_per_device": Field(
        "energy per device",
        "What a device spends in a round on average, data and pilots; a codeword has energy one.",
        "codewords",
    ),
    "energy_spread": Field(
        "spread of energy", "The standard deviation of that over the devices of a round.", "codewords"
    ),
    "energy_max": Field("largest energy", "What the device that spends most spends in a round.", "codewords"),
    "energy_nominal": Field(
        "nominal energy",
        "What a device is meant to spend in a round; the noise under `transmit` follows it.",
        "codewords",
    ),
    "peak_power": Field("peak power", "The largest energy of a device in one channel use.", "codewords"),
    "pilot_share": Field("pilots", "The share of the channel uses that carry pilots."),
    "downlink_bits": Field("downlink", "What the base station broadcasts before a round.", "bits"),
    "agreed_bits": Field(
        "agreed bits", "What devices and base station agree on before a round, beside the broadcast.", "bits"
    ),
    "base_station_gflop": Field(
        "decoder work",
        "The arithmetic of decoding one round at one antenna, estimated; zero for schemes that are told the result or whose "
        "bits are taken as free of errors.",
        "GFLOP",
    ),
    "samples_per_second": Field("samples per second", "How many training samples are processed in a second."),
    "slots_per_second": Field("slots per second", "How many slots are decoded in a second."),
    "update_nmse_faded": Field("update NMSE, faded", "The error of the update where gains fade, over its energy."),
    "seconds": Field("time", "How long it took.", "s"),
    "side_information": Field("side information", "What reaches the base station besides the radio signal."),
    "paper_test_accuracy": Field("test accuracy, paper", "The test accuracy that the paper prints."),
    "paper_count_accuracy": Field("count accuracy, paper", "The count accuracy that the paper prints."),
    "within": Field("below perfect by at most", "How far below perfect aggregation still counts as working."),
    "lowest_snr_db": Field("needs", "The lowest SNR from which on an uplink works.", "dB"),
    "gain_db": Field("gain", "How much less SNR an uplink needs than AMP-DA.", "dB"),
    "device_nmse": Field("NMSE, devices' fragments", "The quantisation error of the devices' fragments, normalised."),
    "base_station_nmse": Field("NMSE, its own fragments", "The same for the base station's own fragments."),
    "num_active": Field("K", "How many devices were active in the round.", "devices"),
    "num_active_hat": Field("estimated K", "The estimated number of active devices before rounding.", "devices"),
    "num_active_error": Field(
        "standard error of K", "The standard error that the base station states of its estimate.", "devices"
    ),
    "train_loss": Field("local loss", "The mean cross-entropy of the devices' local training.", "nats"),
    "quantization_nmse": Field(
        "quantisation NMSE", "The squared error of the devices' quantised updates over their squared norm."
    ),
    "feedback_ratio": Field("feedback ratio", "The norm of the error-feedback residual over that of the update."),
    "collision_rate": Field(
        "collisions", "The share of sent codewords that another device sent in the same slot.", "share"
    ),
    "repeat": Field("repeats", "How many times each slot of the round was sent."),
    "snr_db_hat": Field("estimated SNR", "The base station's estimate of the SNR.", "dB"),
    "model": Field("model", "The model; a user's own by the name of its class."),
    "aggregator": Field("aggregator", "The aggregation rule."),
    "dataset": Field("dataset", "The dataset and its variant."),
    "num_parameters": Field("parameters", "How many parameters the model has."),
    "buffers": Field("buffers", "How BatchNorm buffers reach the base station; none if the model has none."),
    "norm": Field("normalisation", "Batch or group normalisation in the model."),
    "local_steps": Field("local steps", "How many steps a device trains in a round."),
    "num_active_ratio": Field("K over rounded estimate", "The true number of devices over its rounded estimate."),
    "predicted_scale": Field(
        "predicted scale",
        "The scale of BatchNorm's statistics in the last round, by K over its estimate in every round.",
    ),
    "settled_scale": Field(
        "settled scale", "Where the scale of BatchNorm's statistics settles if their sum is divided by the estimate."
    ),
    "buffer_scale": Field("measured scale", "The scale of BatchNorm's statistics beside averaged ones."),
    "scale": Field("scale", "The factor that BatchNorm's statistics were multiplied by."),
    "average": Field("averaged buffers", "The test accuracy with averaged buffers."),
    "estimated": Field(
        "estimated buffers", "The test accuracy with buffers divided by the estimated number of devices."
    ),
    "local": Field("local buffers", "The test accuracy with the base station's buffers."),
    "recomputed": Field("recomputed buffers", "The test accuracy with buffers from the base station's data."),
    "condition": Field("condition", "Under which conditions a federated run trains."),
    "update_gain": Field("gain", "The length of the decoded mean along the true one; 1 is unbiased."),
    "variance": Field("variance", "The NMSE of the decoded mean that is not bias: NMSE − (1 − gain)²."),
    "scheme": Field("scheme", "How the update is coded and decoded."),
    "readout": Field("readout", "What the mean is formed of: integers, soft counts, or soft counts made unbiased."),
    "raw_nmse": Field(
        "NMSE, raw",
        "The squared error of the aggregate against the mean of the raw messages, over the squared norm of that mean.",
    ),
    "raw_gain": Field("gain, raw", "The length of the aggregate along the mean of the raw messages; 1 is unbiased."),
    "raw_variance": Field("variance, raw", "The NMSE against the raw messages that is not bias."),
    "gain_popular": Field("slope, popular", "The slope of decoded over true counts, popular half of the codewords."),
    "gain_rare": Field("slope, rare", "The same for the rare half."),
    "lowest_layer_gain": Field("lowest gain of a layer", "The gain of the parameter tensor where it is lowest."),
    "highest_layer_gain": Field("highest gain of a layer", "The gain of the parameter tensor where it is highest."),
}
"""By name, in the order of columns."""


def label_of(name: str) -> str:
    """Return the heading of a field with its unit; of an unknown one, its name in words."""
    return FIELDS[name].label if name in FIELDS else name.replace("_", " ")


def columns_of(names: Iterable[str]) -> dict[str, str]:
    """Return the headings of some fields, as tables take them."""
    return {name: label_of(name) for name in dict.fromkeys(names)}
