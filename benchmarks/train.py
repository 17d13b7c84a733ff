"""How fast is a training step of codebook and decoder? Beside autograd through the plain version, one thread."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from aircomp.common import rng as rngs
from aircomp.common.results import Row
from aircomp.common.threads import one_thread
from aircomp.decoders.net.base import NetState
from aircomp.decoders.net.gamp_net import GampNet, NetOutput
from aircomp.train.batches import Batch, make_batch
from aircomp.train.loop import descend
from aircomp.train.recipe import PretrainSettings
from aircomp.train.rounds import TrainingRound
from aircomp.train.step import LayerModel, batch_loss
from benchmarks.decode import NUM_CODEWORDS, zipf_round
from benchmarks.net import agrees, set_last_convolutions
from benchmarks.timing import interleaved
from plain.gamp_net import unroll as plain_unroll


class PlainNet(GampNet):
    """The network with its layers as they are written down; autograd finds the gradients."""

    def unroll(
        self,
        received: Float[Tensor, "slots uses"],
        codebook: Float[Tensor, "codewords uses"],
        rate: Float[Tensor, " codewords"],
        noise_var: Float[Tensor, " slots"],
        *,
        hold_noise: bool = False,
        chunk: int | None = None,
        watch: Callable[[NetState], None] | None = None,
    ) -> NetOutput:
        """Run all layers on all slots at once, as training does."""
        assert (hold_noise, chunk, watch) == (False, None, None)  # the plain layers can do none of it
        return plain_unroll(self, received, codebook, rate, noise_var)


def bench_train(batch_sizes: Sequence[int], repeats: int) -> list[Row]:
    """Return samples per second of a step (forward, backward, Adam) for each number of slots in a batch.

    The plain version takes batches of the same size: both estimate the round first, which costs the same for any size,
    so that ratios between unequal batches would compare the sizes too.
    """
    settings = PretrainSettings()
    saved = synthetic_round(max(batch_sizes))
    batches = {size: make_batch(saved, torch.arange(size), 10.0, "round") for size in batch_sizes}
    fast, plain = _models(settings)
    with one_thread():
        apart = {size: loss_difference(fast, plain, batch, settings) for size, batch in batches.items()}
        steps = {f"fast {size}": _stepper(fast, batch, settings) for size, batch in batches.items()}
        steps |= {f"plain {size}": _stepper(plain, batch, settings) for size, batch in batches.items()}
        seconds = interleaved(steps, repeats)
    return [_row(size, seconds[f"fast {size}"], seconds[f"plain {size}"], apart[size]) for size in batches]


def synthetic_round(num_slots: int) -> TrainingRound:
    """Return a round of ten devices that choose popular codewords more often."""
    rng = rngs.generator(0, "bench round")
    indices, popularity = zipf_round(num_slots, NUM_CODEWORDS, rng=rng)
    quant_codebook = torch.randn(NUM_CODEWORDS, 20, generator=rng)
    return TrainingRound("bench", indices.to(torch.int16), popularity, quant_codebook, None)


def loss_difference(fast: LayerModel, plain: LayerModel, batch: Batch, settings: PretrainSettings) -> float:
    """Return by how much the losses of two models differ over the same channel, relative to the plain one's."""
    ours = _loss(fast, batch, settings).detach()  # with gradients: the forward pass of training
    with torch.no_grad():
        theirs = _loss(plain, batch, settings)
    return float((ours - theirs).abs() / theirs.abs())


def _models(settings: PretrainSettings) -> tuple[LayerModel, LayerModel]:
    """Return a model with random weights, and the same with plain layers."""
    fast, plain = LayerModel(settings, NUM_CODEWORDS), LayerModel(settings, NUM_CODEWORDS)
    set_last_convolutions(fast.net, rng=rngs.generator(0, "bench weights"))
    plain.net = PlainNet(settings.net)
    plain.load_state_dict(fast.state_dict())
    return fast, plain


def _loss(model: LayerModel, batch: Batch, settings: PretrainSettings) -> Tensor:
    return batch_loss(model, batch, settings.loss, rng=rngs.generator(0, "bench channel")).total


def _stepper(model: LayerModel, batch: Batch, settings: PretrainSettings) -> Callable[[], object]:
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    return lambda: descend(model, optimizer, _loss(model, batch, settings), settings.clip_norm)


def _row(size: int, seconds: float, plain_seconds: float, apart: float) -> Row:
    return {
        "contender": "train step",
        "batch_slots": size,
        "seconds": seconds,
        "samples_per_second": size / seconds,
        "plain_samples_per_second": size / plain_seconds,
        "times_plain": plain_seconds / seconds,
        "loss_difference": apart,
        "agrees": agrees(f"the loss of {size} slots", apart),
    }
