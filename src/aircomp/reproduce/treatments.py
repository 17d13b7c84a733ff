r"""One federated run, tested under every treatment of BatchNorm's statistics.

Local training uses the statistics of its own batches, so the weights do not depend on the running ones: a run has one
sequence of weights, whatever becomes of its buffers. After $E$ local steps a device's buffers are
$b_k = m\,b + (1-m)\,s_k$ with $m = (1-\mathrm{momentum})^E$, linear in those that it began with. From the buffers of one
treatment therefore follow those of every other one, without training again.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common.results import Row
from aircomp.data.images import ImageData
from aircomp.device.update import FlatModel
from aircomp.fl.evaluate import evaluate, recompute_statistics
from aircomp.fl.experiment import Buffers
from aircomp.fl.round import Record, Round

KEPT = 0.9
"""What a step leaves of a running statistic: one minus the momentum of PyTorch's BatchNorm."""


@dataclass
class Treatments:
    """Follows a run whose buffers are averaged exactly; `on_round` belongs to `simulate`.

    Args:
        module: A model like the run's; it is overwritten.
        data: What to test on.
        base_samples: The base station's share of the training images.
        steps: Local steps of a device in a round.
        tested: The rounds after which to test.
    """

    module: nn.Module
    data: ImageData
    base_samples: Tensor
    steps: int
    tested: Sequence[int]
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = FlatModel(self.module)
        start = self.model.read_buffers()
        self.averaged, self.estimated, self.local = start, start, start

    def on_round(self, record: Record, happened: Round | None) -> None:
        """Carry every treatment's buffers on, and test them near the end."""
        if happened is None:
            return
        kept = KEPT**self.steps
        number = max(1, round(happened.exchange.output.num_active_hat or 0))
        others = (happened.buffers + kept * (self.estimated - self.averaged)).sum(dim=0)
        self.estimated = others / number
        self.local = happened.base_buffers + kept * (self.local - self.averaged)
        self.averaged = happened.after.buffers
        if record["round"] in self.tested:
            self.rows += self._test(happened.after.weights, record)

    def _test(self, weights: Float[Tensor, " params"], record: Record) -> list[Row]:
        about = {
            "round": record["round"],
            "num_active_ratio": record["num_active"] / max(1, round(record["num_active_hat"])),
        }
        if not self.averaged.numel():
            self.model.load(weights, self.averaged)
            return [about | {"buffers": "none", "buffer_scale": None} | self._accuracy()]
        found = []
        choices: dict[Buffers, Tensor] = {"average": self.averaged, "estimated": self.estimated, "local": self.local}
        for treatment, buffers in choices.items():
            self.model.load(weights, buffers)
            scale = float(buffers @ self.averaged / (self.averaged @ self.averaged))
            found.append(about | {"buffers": treatment, "buffer_scale": scale} | self._accuracy())
        recompute_statistics(self.module, self.data, self.data.train_images[self.base_samples])
        return [*found, about | {"buffers": "recomputed", "buffer_scale": None} | self._accuracy()]

    def summary(self) -> list[Row]:
        """Return a row for each treatment: the last test, and the mean of the last five."""
        rows = []
        for treatment in dict.fromkeys(row["buffers"] for row in self.rows):
            same = [row for row in self.rows if row["buffers"] == treatment]
            mean = statistics.fmean(row["test_accuracy"] for row in same[-5:])
            rows.append(same[-1] | {"test_accuracy_last5": mean})
        return rows

    def _accuracy(self) -> Row:
        accuracy, loss = evaluate(self.module, self.data)
        return {"test_accuracy": accuracy, "test_loss": loss}


def scale_after(ratios: Sequence[float], steps: int) -> float:
    r"""Return the scale of the buffers after rounds with the given $K/\hat K$; see `settled_scale`."""
    kept, scale = KEPT**steps, 1.0
    for ratio in ratios:
        scale = ratio * (kept * scale + 1 - kept)
    return scale


def settled_scale(ratio: float, steps: int) -> float:
    r"""Return where the scale of the buffers settles when every round divides their sum by $\hat K$ instead of $K$.

    With $r = K/\hat K$ and $m$ as above a round takes the scale $s$ to $r\,(m s + 1 - m)$, whose fixed point is
    $s^* = r(1-m)/(1-rm)$.
    """
    kept = KEPT**steps
    return ratio * (1 - kept) / (1 - ratio * kept)
