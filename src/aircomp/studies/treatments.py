r"""One federated run, tested under two treatments of BatchNorm's statistics: averaged, and as in the authors' code.

Local training uses the statistics of its own batches, so the weights do not depend on the running ones: a run has one
sequence of weights, whatever becomes of its buffers. After $E$ local steps a device's buffers are
$b_k = m\,b + (1-m)\,s_k$ with $m = (1-\mathrm{momentum})^E$, linear in those that it began with. From the buffers of one
treatment therefore follow those of the other one, without training again.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common.results import Row
from aircomp.common.tensors import expect_tensor, read_tensors, write_tensors
from aircomp.data.images import ImageData
from aircomp.device.update import FlatModel
from aircomp.errors import ArtefactError
from aircomp.federation.evaluate import evaluate
from aircomp.federation.experiment import Buffers
from aircomp.federation.round import Record, Round

KEPT = 0.9
"""What a step leaves of a running statistic: one minus the momentum of PyTorch's BatchNorm."""
ROUNDS_KEPT = 3
"""Files of the last rounds; a checkpoint of the run after every round is one behind at the most."""


@dataclass
class Treatments:
    """Follows a run whose buffers are averaged exactly; `on_round` belongs to `simulate`.

    Args:
        module: A model like the run's; it is overwritten.
        data: What to test on.
        steps: Local steps of a device in a round.
        tested: The rounds after which to test.
        folder: Keeps buffers and tests of the last rounds, so that a run that was killed and resumed is followed from
            where it goes on; nothing is kept without one.
    """

    module: nn.Module
    data: ImageData
    steps: int
    tested: Sequence[int]
    folder: Path | None = None
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = FlatModel(self.module)
        start = self.model.read_buffers().cpu()
        self.averaged, self.estimated, self.rounds_done = start, start, 0

    def on_round(self, record: Record, happened: Round | None) -> None:
        """Carry both treatments' buffers on, and test them after some rounds."""
        number = int(record["round"])
        if number != self.rounds_done + 1:
            self.load(number - 1)
        if happened is not None:
            kept = KEPT**self.steps
            devices = max(1, round(happened.exchange.output.num_active_hat or 0))
            others = (happened.buffers + kept * (self.estimated - self.averaged)).sum(dim=0)
            self.estimated, self.averaged = others / devices, happened.after.buffers
            if number in self.tested:
                self.rows += self._test(happened.after.weights, record)
        self.rounds_done = number
        self.save()

    def save(self) -> None:
        """Keep what is known after this round, and forget a round of before."""
        if self.folder is None:
            return
        buffers = {
            "averaged": self.averaged.clone(),
            "estimated": self.estimated.clone(),
        }  # no file takes a tensor twice
        write_tensors(self._path(self.rounds_done), buffers, {"rows": json.dumps(self.rows)})
        self._path(self.rounds_done - ROUNDS_KEPT).unlink(missing_ok=True)

    def load(self, rounds_done: int) -> None:
        """Go on after a round of the run, which was resumed.

        Raises:
            ArtefactError: If that round was not kept, or its file is damaged.
        """
        path = None if self.folder is None or rounds_done == 0 else self._path(rounds_done)
        if path is None or not path.exists():
            raise ArtefactError(f"nothing was kept of round {rounds_done} in {self.folder}; {REMEDY}")
        tensors, metadata = read_tensors(path)
        found = {
            name: expect_tensor(path, tensors, name, self.averaged.dtype, self.averaged.shape, REMEDY, finite=False)
            for name in ("averaged", "estimated")
        }
        self.averaged, self.estimated, self.rounds_done = found["averaged"], found["estimated"], rounds_done
        self.rows = json.loads(metadata.get("rows", "[]"))

    def _path(self, rounds_done: int) -> Path:
        assert self.folder is not None
        return self.folder / f"treatments_{rounds_done:06d}.safetensors"

    def _test(self, weights: Float[Tensor, " params"], record: Record) -> list[Row]:
        about = {
            "round": record["round"],
            "num_active_ratio": record["num_active"] / max(1, round(record["num_active_hat"])),
        }
        if not self.averaged.numel():
            self.model.load(weights, self.averaged)
            return [about | {"buffers": "none", "buffer_scale": None} | self._accuracy()]
        found = []
        choices: dict[Buffers, Tensor] = {"average": self.averaged, "estimated": self.estimated}
        for treatment, buffers in choices.items():
            self.model.load(weights, buffers)
            scale = float(buffers @ self.averaged / (self.averaged @ self.averaged))
            found.append(about | {"buffers": treatment, "buffer_scale": scale} | self._accuracy())
        return found

    def _accuracy(self) -> Row:
        accuracy, loss = evaluate(self.module, self.data)
        return {"test_accuracy": accuracy, "test_loss": loss}


def last_tests(tests: Sequence[Row]) -> list[Row]:
    """Return a row for each treatment: the last test, and the mean of the last five."""
    rows = []
    for treatment in dict.fromkeys(row["buffers"] for row in tests):
        same = [row for row in tests if row["buffers"] == treatment]
        mean = statistics.fmean(row["test_accuracy"] for row in same[-5:])
        rows.append(same[-1] | {"test_accuracy_last5": mean})
    return rows


REMEDY = "delete the job's directory to begin it anew"


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
