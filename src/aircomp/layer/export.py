"""The decoder as a file that runs without this package: ONNX, or a program of torch.export.

    received [slots, uses] ─┐
    rate [codewords] ───────┼──► all layers of GAMP-Net, codebook and weights baked in ──► soft_counts, num_active_hat,
    noise_var [slots] ──────┘                                                              noise_var_hat

The layers are those of `aircomp.decoders.net.gamp_net`, with two differences that a fixed graph asks for: which counts a
posterior sums is decided when exporting, and the convolutions are ordinary ones. The start of a decoding
(`PilotEstimator.estimate`: rates and noise) and its end (rounding) have loops whose length depends on the data, so
they are not exported.
"""

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.common.artefact import check_file, check_writable, write_atomically
from aircomp.common.tensors import MOST_TENSOR_BYTES
from aircomp.decoders.amp.prior import reach_for
from aircomp.decoders.amp.steps import MIN_NOISE, AmpState, PreparedCodebook
from aircomp.decoders.net.base import Moments
from aircomp.decoders.net.blocks import (
    Belief,
    Evidence,
    Scalars,
    expectation_maximisation,
    initial_belief,
    message_passing,
    refine,
)
from aircomp.decoders.net.cnn import Cnn, Workspace
from aircomp.decoders.net.gamp_net import GampNet
from aircomp.decoders.net.tempered import CountTable, posterior_around_modes
from aircomp.errors import ArtefactError, ConfigError
from aircomp.layer.communication import CommunicationLayer

Format = Literal["onnx", "torch"]
SUFFIX: dict[Format, str] = {"onnx": ".onnx", "torch": ".pt2"}
INPUTS = ("received", "rate", "noise_var")
OUTPUTS = ("soft_counts", "num_active_hat", "noise_var_hat")
EXAMPLE_SLOTS = 8  # that the graph is traced with; any number but 0 and 1, which torch.export takes for constants


class StaticNet(nn.Module):
    """GAMP-Net with everything fixed but the signal: what is exported.

    Args:
        layer: The trained layer.
        max_devices: Counts up to twice as many are told apart.
        max_variance: Of the noise and the signal before decoding, per channel use; sets how many counts are summed.
    """

    def __init__(self, layer: CommunicationLayer, *, max_devices: int = 40, max_variance: float = 4.0):
        super().__init__()
        if max_devices < 1 or not max_variance > 0:
            raise ConfigError(
                f"max_devices {max_devices}, max_variance {max_variance}: expected at least one device, and some variance"
            )
        net = layer.net
        if not isinstance(net, GampNet):
            raise ConfigError(
                f"the layer has form {layer.form}, and only layers of form gamp-net can be exported; give one of those "
                "(aircomp layers lists the package's)"
            )
        self.codebook = nn.Buffer(layer.codebook.detach().cpu().float())
        with torch.no_grad():
            scalars = net.scalars(self.codebook)
        self.scalars = nn.Buffer(torch.stack([torch.stack(list(k)) for k in scalars]).cpu())
        self.cnn = nn.ModuleList(_Convolutions(cnn) for cnn in net.cnn if isinstance(cnn, Cnn))
        stretch = [float(k.temperature / k.precision) for k in scalars]
        reaches = [reach_for(max_variance * factor, max_count=max(4, max_devices)) for factor in stretch]
        self.tables = nn.ModuleList(_Table(CountTable.of(r, 2 * max_devices + 8, self.codebook)) for r in reaches)

    def forward(
        self,
        received: Float[Tensor, "slots uses"],
        rate: Float[Tensor, " codewords"],
        noise_var: Float[Tensor, " slots"],
    ) -> tuple[Float[Tensor, "slots codewords"], Float[Tensor, ""], Float[Tensor, " slots"]]:
        """Run all layers; see `GampNet.unroll`."""
        book, total = PreparedCodebook.of(self.codebook), rate.sum()
        log_total, belief, s = total.log(), initial_belief(rate, noise_var), _start(received, rate)
        for i, values in enumerate(self.scalars.unbind()):
            k, table = Scalars(*values.unbind()), self.tables[i]()
            s, seen, width = message_passing(s, received, book, belief, k)
            post = posterior_around_modes(seen, width, belief.log_rate, k.temperature, table)
            x_hat = post.mean
            if self.cnn:
                x_hat = refine(post, seen, width, belief, k, self.cnn[i], Workspace())  # which ours do not use
            belief = _learn(belief, post, s, received, k, log_total)
            s = replace(s, x_hat=x_hat, nu=post.var)
        silent = total == 0  # nobody sends: the logarithm of their number is infinite, and all that follows from it
        mean = torch.where(silent, 0.0, s.x_hat)
        return mean, mean.sum(1).mean(), belief.noise_var[:, 0]


class _Table(nn.Module):
    """A table of counts as part of the graph."""

    def __init__(self, table: CountTable):
        super().__init__()
        for name, value in table._asdict().items():
            self.register_buffer(name, value)

    def forward(self) -> CountTable:
        return CountTable(*(getattr(self, name) for name in CountTable._fields))


class _Convolutions(nn.Module):
    """`aircomp.decoders.net.cnn.Cnn` with the convolutions that every runtime has."""

    def __init__(self, cnn: Cnn):
        super().__init__()
        for name, value in cnn.state_dict().items():
            self.register_buffer(name, value.detach().cpu())

    def forward(
        self, features: Sequence[Float[Tensor, "#slots codewords"]], workspace: Workspace
    ) -> Float[Tensor, "slots codewords"]:
        slots, n = features[0].shape
        x = torch.stack([f.expand(slots, n) for f in features], dim=1)
        for part in ("in", "mid", "out"):
            weight, bias = getattr(self, f"weight_{part}"), getattr(self, f"bias_{part}")
            x = F.conv1d(x if part == "in" else F.relu(x), weight, bias, padding=weight.shape[2] // 2)
        return x[:, 0]


# The blocks below are those of `net_blocks` that take the number of slots as a Python integer, with `shape[0]` for `len`:
# tracing would make a constant of that one.


def _start(y: Tensor, rate: Tensor) -> AmpState:
    prior = rate.expand(y.shape[0], rate.shape[0])
    return AmpState(prior, prior, y, torch.ones_like(y))


def _learn(belief: Belief, post: Moments, s: AmpState, y: Tensor, k: Scalars, log_total: Tensor) -> Belief:
    """Let expectation maximisation move the belief."""
    noise = belief.noise_var.clamp(min=MIN_NOISE)
    share = noise / (noise + s.v)
    energy = ((share * (y - s.z)).square() + share * s.v).mean(1, keepdim=True)
    means = (t.mean(0, keepdim=True, dtype=torch.float64) for t in (*post, energy, belief.noise_var))
    evidence = Evidence(*means, rate_before=None, num_slots=y.shape[0])
    return expectation_maximisation(belief, evidence, k, log_total=log_total, hold_noise=False)


def trace(
    layer: CommunicationLayer, *, max_devices: int = 40, max_variance: float = 4.0
) -> torch.export.ExportedProgram:
    """Return the decoder as a program of torch.export for any number of slots; see `StaticNet`."""
    net = StaticNet(layer, max_devices=max_devices, max_variance=max_variance).eval()
    n, l = net.codebook.shape  # noqa: E741
    example = (torch.ones(EXAMPLE_SLOTS, l), torch.full((n,), 1 / n), torch.ones(EXAMPLE_SLOTS))
    slots = torch.export.Dim("slots", min=1)
    with torch.no_grad():
        return torch.export.export(net, example, dynamic_shapes=({0: slots}, None, {0: slots}))


def export_layer(
    layer: CommunicationLayer,
    path: str | Path,
    format: Format,
    *,
    max_devices: int = 40,
    max_variance: float = 4.0,
    overwrite: bool = False,
) -> None:
    """Write a layer's decoder to a file, all of it or nothing.

    Args:
        layer: A trained layer.
        path: The file.
        format: `onnx`, or `torch` for torch.export's own.
        max_devices: Counts up to twice as many are told apart.
        max_variance: Of the noise and the signal before decoding, per channel use.
        overwrite: Replace the file if there is one.

    Raises:
        ArtefactError: If the file exists or cannot be written.
        ConfigError: If ONNX was asked for and its packages are missing.
    """
    path = Path(path)
    _check_replaced(path, format, overwrite=overwrite)
    if format == "onnx":
        _need_onnx()
    program = trace(layer, max_devices=max_devices, max_variance=max_variance)
    content = _WRITERS[format](program)
    write_atomically(path, lambda temporary: _write(temporary, content))


BEGINNINGS: dict[Format, bytes] = {"onnx": b"\x08", "torch": b"PK\x03\x04"}
"""First bytes of a file: the protocol buffer's version field, the archive's signature."""


def _check_replaced(path: Path, format: Format, *, overwrite: bool) -> None:
    """See that the file can be written, and that only an earlier export is replaced."""
    check_writable(path)
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise ArtefactError(f"{path} exists; replace it with --overwrite or choose another --out")
    check_file(path, MOST_TENSOR_BYTES)
    with open(path, "rb") as file:
        if file.read(8)[: len(BEGINNINGS[format])] != BEGINNINGS[format]:
            raise ArtefactError(f"{path} is no {format} file, so it is not replaced; choose another --out")


def _need_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed; get it with pip install 'aircomp[onnx]'") from None


def _as_onnx(program: torch.export.ExportedProgram) -> bytes:
    with _silent_exporter():
        made = torch.onnx.export(
            program,
            dynamo=True,
            verbose=False,
            input_names=list(INPUTS),
            output_names=list(OUTPUTS),
            dynamic_shapes={"received": {0: "slots"}, "rate": None, "noise_var": {0: "slots"}},  # only for the name
        )
    assert made is not None
    return made.model_proto.SerializeToString()


@contextlib.contextmanager
def _silent_exporter() -> Iterator[None]:
    """Silence torch's messages about its internals and about packages that nothing here needs."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(before)


def _as_torch(program: torch.export.ExportedProgram) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


_WRITERS: dict[str, Callable[[torch.export.ExportedProgram], bytes]] = {"onnx": _as_onnx, "torch": _as_torch}


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
