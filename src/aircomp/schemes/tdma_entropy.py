r"""Entropy-coded scalars in turns: each device quantises its update as finely as the bits of its turn allow.

    base station: own update ──► factors of fibres (announced) ──► classes of parameters of like predicted size
    devices:      SNR ──► bits of the own slots ──► step Δ, the finest that fits ──► whole numbers, coded ──► turn
    base station: every device's whole numbers ──► points of least error

One step serves all parameters: at high rates this shares the bits in the best way, as reverse water-filling does. A wide dead
zone serves low rates:

$$q = \operatorname{sign}(x)\lfloor |x|/\Delta + r\rfloor, \quad \hat x = \operatorname{sign}(q)\,(|q| + s_{|q|})\,\Delta,$$

where $s$ of ones, and of all larger numbers, is what the device finds best. A number is told by how many binary digits it
has, by these digits, and by its sign. Whether it has more digits than $k$ is a binary decision of the parameter's class,
and an adaptive arithmetic code spends on $n_0$ and $n_1$ of these

$$-\log_2 \frac{B(n_0 + \tfrac12, n_1 + \tfrac12)}{B(\tfrac12, \tfrac12)}$$

bits (Krichevsky and Trofimov 1981). Uniform quantisers before an entropy code are due to Gish and Pierce (1968). No table
of probabilities is sent, and what the code costs is counted exactly, but for the last two bits of an arithmetic code. So
this is what separate source and channel codes reach: the rate is the channel's, and an entropy-coded scalar is within a
quarter of a bit of the rate-distortion function at high rates.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aircomp.quantize.compress import NUMBER_BITS
from aircomp.schemes.base import Broadcast
from aircomp.schemes.refined.fibres import fibre_means, spread
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import TurnsSettings
from aircomp.schemes.tdma import InTurns

CLASSES = 8
"""Of parameters, by their predicted size; each has its own probabilities."""
ROUNDING = (0.15, 0.25, 0.35, 0.45)
"""r; ½ would be the nearest number."""
DIGITS = 24
"""The most of a number: float32 tells no more."""
ONCE = 2 * NUMBER_BITS
"""Bits for step, r and s, and for the end of the arithmetic code."""
HALVINGS = 12
"""Of the interval of the step's logarithm, from one to the length of a number of that many digits."""


@scheme(
    "tdma-entropy",
    sends="its update as entropy-coded whole numbers, in turns",
    needs="any",
    source="Gish and Pierce 1968, rates at capacity",
    checked="derived",
    against="Gaussian numbers err by at most πe/6 more than their rate allows",
)
class TdmaEntropy(InTurns):
    """Entropy-coded scalars in turns."""

    settings_class = TurnsSettings

    def _announced(self, base_update: Float[Tensor, " params"], rng: torch.Generator) -> dict[str, Tensor]:
        shapes = self.context.tensor_shapes(base_update.numel())
        return {"factors": fibre_means(base_update.double().square(), shapes).sum(dim=1).float()}

    def _compressed(
        self, message: Float[Tensor, " params"], bits: float, broadcast: Broadcast, rng: torch.Generator
    ) -> tuple[Float[Tensor, " params"], Float[Tensor, " params"]]:
        shapes = self.context.tensor_shapes(broadcast.num_params)
        predicted = spread(broadcast.values["factors"].double()[:, None], shapes)[:, 0]
        found = quantized(message, classes_of(predicted), bits)
        return found, found


def classes_of(predicted: Float[Tensor, " params"]) -> Int[Tensor, " params"]:
    """Return the class of every parameter: equally many in each, by what is predicted of them."""
    rank = torch.empty(len(predicted), dtype=torch.int64, device=predicted.device)
    rank[predicted.argsort(stable=True)] = torch.arange(len(predicted), device=predicted.device)
    return rank * CLASSES // max(len(predicted), 1)


def quantized(
    message: Float[Tensor, " params"], classes: Int[Tensor, " params"], bits: float
) -> Float[Tensor, " params"]:
    """Return the message as it arrives with so many bits; zero where they do not tell anything."""
    best, least = torch.zeros_like(message), float(message.double().square().sum())
    largest = float(message.abs().max()) if len(message) else 0.0
    if largest == 0 or bits <= ONCE:
        return best
    for rounding in ROUNDING:
        low, high = 0.0, float(DIGITS - 1)  # the step is the largest number over a power of two
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            fits = ONCE + code_length(_numbers(message, largest * 2**-middle, rounding), classes) <= bits
            low, high = (middle, high) if fits else (low, middle)
        step = largest * 2**-low
        numbers = _numbers(message, step, rounding)
        if ONCE + code_length(numbers, classes) > bits:
            continue
        points = _points(message, numbers, step)
        error = float((message.double() - points).square().sum())
        if error < least:
            best, least = points.to(message), error
    return best


def _numbers(message: Float[Tensor, " params"], step: float, rounding: float) -> Float[Tensor, " params"]:
    return (message.abs() / step + rounding).floor()


def _points(
    message: Float[Tensor, " params"], numbers: Float[Tensor, " params"], step: float
) -> Float[Tensor, " params"]:
    """Return numbers with their signs, each at the mean of what it stands for: that of ones, and that of all larger ones."""
    over = message.abs().double() / step - numbers
    points = numbers.double()
    for some in (numbers == 1, numbers > 1):
        if some.any():
            points[some] += over[some].mean()
    return points * step * message.sign()


def code_length(numbers: Float[Tensor, " params"], classes: Int[Tensor, " params"]) -> float:
    """Return the bits of an adaptive arithmetic code for numbers without, and one for the sign of each that is not zero.

    >>> round(code_length(torch.zeros(8), torch.zeros(8, dtype=torch.int64)), 2)  # it learns from decision to decision
    2.35
    """
    digits = torch.frexp(numbers).exponent.long().clamp(max=DIGITS)
    table = torch.bincount(classes * (DIGITS + 1) + digits, minlength=CLASSES * (DIGITS + 1))
    stay = table.view(CLASSES, DIGITS + 1).double()
    more = stay.flip(1).cumsum(1).flip(1) - stay
    second = digits[digits > 1]
    ones = (numbers[digits > 1] * 2.0 ** (2 - second)).floor().long() == 3  # the digit behind the first, which is one
    mantissa = torch.bincount(second * 2 + ones, minlength=2 * (DIGITS + 1)).view(-1, 2).double()
    raw = (second - 2).sum() + (digits > 0).sum()
    return float(_adaptive(stay, more).sum() + _adaptive(mantissa[:, 0], mantissa[:, 1]).sum() + raw)


def _adaptive(zeros: Float[Tensor, "*batch"], ones: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Return the bits for so many zeros and ones by the estimator of Krichevsky and Trofimov."""
    half = torch.tensor(0.5, dtype=zeros.dtype)
    beta = torch.lgamma(zeros + half) + torch.lgamma(ones + half) - torch.lgamma(zeros + ones + 1)
    return (2 * torch.lgamma(half) - beta) / torch.log(torch.tensor(2.0, dtype=zeros.dtype))
