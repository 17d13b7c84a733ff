"""How well a round was decoded: pure functions of what was sent and what was recovered.

`truth` is always the true counts, `[slots, codewords]`. Ratios are of sums over all slots of the round, except the
accuracy, which the paper averages over slots. Sums are formed in float64, a bounded number of slots at a time and in
a fixed order. Where a ratio's denominator is zero (nobody transmitted), an error rate is 0 and a normalised error is
0 if the estimate is exact and infinite otherwise.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float, Real
from torch import Tensor

from aircomp.errors import ShapeError

# slots converted at a time: with 128 codewords 4 MB in float64
SLOTS_AT_ONCE = 4096


def count_accuracy(truth: Real[Tensor, "slots codewords"], counts: Real[Tensor, "slots codewords"]) -> float:
    r"""Return the paper's normalised ℓ1 accuracy, $1 - \lVert x-\hat x\rVert_1/\lVert x\rVert_1$ averaged over slots.

    Each slot is clipped to [0, 1] (Sec. IV does not say so; without it a badly decoded slot counts below zero). A slot
    in which nobody transmitted counts 1 if nothing was decoded, 0 otherwise.
    """
    total = 0.0
    for x, x_hat in _pieces(truth, counts, "counts"):
        error, mass = (x_hat - x).abs().sum(dim=1), x.sum(dim=1)
        accuracy = (1 - error / mass.where(mass > 0, 1)).clamp(0, 1)
        total += accuracy.where(mass > 0, (error == 0).double()).sum().item()
    return total / truth.shape[0]


def count_nmse(truth: Real[Tensor, "slots codewords"], mean: Real[Tensor, "slots codewords"]) -> float:
    r"""Return $\lVert\hat x-x\rVert^2/\lVert x\rVert^2$ over all slots, usually of the posterior mean."""
    error = power = 0.0
    for x, x_hat in _pieces(truth, mean, "mean"):
        error += (x_hat - x).square().sum().item()
        power += x.square().sum().item()
    return _normalized(error, power)


def update_nmse(
    truth: Real[Tensor, "slots codewords"],
    estimate: Real[Tensor, "slots codewords"],
    quant_codebook: Float[Tensor, "codewords fragment"],
) -> float:
    r"""Return $\lVert(\hat x-x)Q\rVert^2/\lVert xQ\rVert^2$ over all slots: the error of the summed update.

    It is the error that trains the global model, hard or soft by what is passed. Sums are compared, not means, so a
    wrong number of active devices shows only through the counts.

    Args:
        truth: The true counts.
        estimate: Decoded counts (hard) or their posterior mean (soft).
        quant_codebook: What each codeword stands for.
    """
    if quant_codebook.ndim != 2 or truth.ndim != 2 or quant_codebook.shape[0] != truth.shape[1]:
        raise ShapeError(
            f"quant_codebook has shape {tuple(quant_codebook.shape)}; expected [codewords, fragment] to go with truth "
            f"of shape {tuple(truth.shape)}"
        )
    q = quant_codebook.double()
    error = power = 0.0
    for x, x_hat in _pieces(truth, estimate, "estimate"):
        error += ((x_hat - x) @ q).square().sum().item()
        power += (x @ q).square().sum().item()
    return _normalized(error, power)


def vector_nmse(truth: Float[Tensor, "*shape"], estimate: Float[Tensor, "*shape"]) -> float:
    r"""Return $\lVert\hat u-u\rVert^2/\lVert u\rVert^2$ of an update."""
    error = (estimate.double() - truth.double()).square().sum().item()
    return _normalized(error, truth.double().square().sum().item())


def vector_gain(truth: Float[Tensor, "*shape"], estimate: Float[Tensor, "*shape"]) -> float:
    r"""Return $\langle\hat u, u\rangle/\lVert u\rVert^2$: the length of an update along the true one, 1 if unbiased."""
    return ((estimate.double() * truth.double()).sum() / truth.double().square().sum()).item()


def mean_cosine(updates: Float[Tensor, "devices params"]) -> float:
    """Return the mean cosine between the updates of two devices, over all pairs; 0 if there is no pair."""
    directions = torch.nn.functional.normalize(updates.double(), dim=1)
    number = len(updates)
    pairs = directions.sum(dim=0).square().sum() - directions.square().sum()
    return pairs.item() / max(number * (number - 1), 1)


def pupe(truth: Real[Tensor, "slots codewords"], counts: Real[Tensor, "slots codewords"]) -> float:
    r"""Return the per-user probability of error: the share of sent messages missing from the decoded multiset.

    $$\sum \max(x - \hat x, 0) / \sum x,$$

    with multiplicity: of three devices on one codeword decoded as two, one is missing. Messages decoded but never sent
    do not count here.
    """
    missing = sent = 0.0
    for x, x_hat in _pieces(truth, counts, "counts"):
        missing += (x - x_hat).clamp(min=0).sum().item()
        sent += x.sum().item()
    return missing / sent if sent else 0.0


def collision_rate(truth: Real[Tensor, "slots codewords"]) -> float:
    """Return the share of sent messages whose codeword another device sent in the same slot.

    At 0 the paper's majority vote and trimmed mean are the mean.
    """
    collided = sent = 0.0
    for x, _ in _pieces(truth, truth, "truth"):
        collided += x.where(x > 1, 0).sum().item()
        sent += x.sum().item()
    return collided / sent if sent else 0.0


def quantization_nmse(
    messages: Float[Tensor, "devices params"], reconstruction: Float[Tensor, "devices params"]
) -> float:
    r"""Return $\lVert s-\mathcal Q(s)\rVert^2/\lVert s\rVert^2$ over all devices: what quantisation alone costs."""
    if messages.shape != reconstruction.shape:
        raise ShapeError(
            f"reconstruction has shape {tuple(reconstruction.shape)}; expected {tuple(messages.shape)} as messages"
        )
    error = power = 0.0
    for message, sent in zip(messages, reconstruction, strict=True):  # one device at a time bounds memory
        error += (sent.double() - message.double()).square().sum().item()
        power += message.double().square().sum().item()
    return _normalized(error, power)


def _pieces(truth: Tensor, estimate: Tensor, name: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Check that both fit each other, then give them out in float64, some slots at a time."""
    if truth.ndim != 2 or truth.shape[0] == 0:
        raise ShapeError(f"truth has shape {tuple(truth.shape)}; expected [slots, codewords] with at least one slot")
    if estimate.shape != truth.shape:
        raise ShapeError(f"{name} has shape {tuple(estimate.shape)}; expected {tuple(truth.shape)}, the shape of truth")
    for x, x_hat in zip(truth.split(SLOTS_AT_ONCE), estimate.split(SLOTS_AT_ONCE), strict=True):
        yield x.double(), x_hat.double()


def _normalized(error: float, power: float) -> float:
    if power > 0:
        return error / power
    return math.inf if error > 0 else 0.0
