"""One step of training: a batch goes over the air, through the decoder, and back as gradients (Sec. III-E).

Batch ── counts · C + noise ──► GampNet ──► soft counts, K̂ ──► loss ──► Adam
                 ▲                  ▲
                 └─ LearnedCodebook ┘    gradients flow through every use of the codebook
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.channel.awgn import add_noise, noise_variance, superpose
from aircomp.common import rng as rngs
from aircomp.decoders.estimate.pilot import PilotEstimator
from aircomp.decoders.net.gamp_net import GampNet, NetOutput, rates_of_slots
from aircomp.encode.learned import LearnedCodebook
from aircomp.errors import ConfigError
from aircomp.train import loss as losses
from aircomp.train.batches import Batch
from aircomp.train.recipe import LossSettings, PretrainSettings

TOLD_ERROR = 0.06
"""Standard deviation of the logarithm of the number of devices that a batch is told: 0.6 of ten."""
NOISE_ERROR = 0.05
"""… and of the mean noise variance."""


class LayerModel(nn.Module):
    """Codebook and decoder as one module with all that is learned."""

    def __init__(self, settings: PretrainSettings, num_codewords: int):
        super().__init__()
        rng = rngs.generator(settings.seed, "learned codebook")
        self.codebook = LearnedCodebook(settings.codebook, num_codewords, settings.codeword_length, rng=rng)
        self.net = GampNet(settings.net, rng=rngs.generator(settings.seed, "decoder weights"))
        self.estimates, self.noise_follows = settings.data.estimates, settings.codebook.noise_follows

    def forward(self, batch: Batch, *, rng: torch.Generator) -> NetOutput:
        """Send a batch over the channel and decode it, from the estimates that the decoder itself would start from.

        Those of the decoder are of the whole round, and a batch alone tells much less. So the number of devices is given to
        the batch, about as wrong as a whole round would tell it, and so are rates and noise where the recipe asks for it
        (`data.estimates`).
        """
        codebook = self.codebook()
        received = send(batch, codebook, noise_follows=self.noise_follows, rng=rng)
        wrong = torch.randn((), generator=rng, device=rng.device).item()
        num_active = batch.num_active * math.exp(TOLD_ERROR * wrong)
        if self.estimates == "round":
            rate = rates_of_slots(num_active * batch.shares, batch.log_ratio)
            return self.net.unroll(received, codebook, rate, self._noise(received, batch, rng))
        return self.net(
            received,
            codebook,
            batch.popularity,
            num_active=num_active,
            snr_reference=batch.snr_reference,
            log_ratio=batch.log_ratio,
        )

    def _noise(self, received: Tensor, batch: Batch, rng: torch.Generator) -> Float[Tensor, " slots"]:
        """Return the noise variance of every slot, about as a decoder finds it from the whole round."""
        codebook = self.codebook().detach()
        clean = superpose(batch.counts, codebook)
        noise = noise_variance(clean, batch.snr_db, batch.snr_reference, num_active=batch.num_active)
        wrong = torch.randn((), generator=rng, device=rng.device).item()
        mean = float(noise.double().mean()) * math.exp(NOISE_ERROR * wrong)
        pilot = PilotEstimator(codebook, snr_reference=batch.snr_reference)
        return pilot.noise_of_slots(received.detach(), mean)


def send(
    batch: Batch, codebook: Float[Tensor, "codewords uses"], *, noise_follows: bool, rng: torch.Generator
) -> Float[Tensor, "slots uses"]:
    """Send a batch over the channel; gradients may see that its noise follows the power that arrives."""
    sent = superpose(batch.counts, codebook)
    noise = noise_variance(sent, batch.snr_db, batch.snr_reference, num_active=batch.num_active)
    if noise_follows:  # times one, with the gradient of the power's logarithm
        power = sent.square().mean(1) if batch.snr_reference == "slot" else sent.square().mean()
        noise = noise * (power / power.detach().clamp(min=torch.finfo(power.dtype).tiny))
    return add_noise(sent, noise, rng=rng)


def batch_loss(model: LayerModel, batch: Batch, weights: LossSettings, *, rng: torch.Generator) -> losses.Terms:
    """Send, decode and compare one batch."""
    output = model(batch, rng=rng)
    none = output.mean.new_zeros(())
    quantization = none
    if weights.quantization:
        if batch.mean_fragments is None:
            raise ConfigError("loss.quantization needs raw fragments, which a round lacks; collect with --raw")
        quantization = losses.quantization_error(
            output.mean, batch.quant_codebook, batch.num_active, batch.mean_fragments
        )
    each = batch.num_active if weights.per_device else 1
    return losses.combine(
        weights,
        counts=losses.count_error(output.mean, batch.counts) / each,
        sparsity=losses.sparsity(output.mean, batch.counts) if weights.sparsity else none,
        orthogonality=model.codebook.orthogonality(),
        activity=losses.activity_error(output.num_active_hat, batch.num_active) / each,
        quantization=quantization,
        update=losses.update_error(output.mean, batch.counts, batch.quant_codebook) if weights.update else none,
    )
