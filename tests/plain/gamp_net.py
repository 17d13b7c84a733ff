"""GAMP-Net as it is written down: all slots at once, `conv1d`, and a table of every count with an exponential each."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.decoders.net.gamp_net import GampNet, NetOutput


def unroll(
    net: GampNet,
    received: Float[Tensor, "slots uses"],
    codebook: Float[Tensor, "codewords uses"],
    rate: Float[Tensor, " codewords"],
    noise_var: Float[Tensor, " slots"],
    *,
    max_count: int = 30,
) -> NetOutput:
    """Return what `GampNet.unroll` does, for rates that all slots share."""
    y, C = received, codebook
    slots, n = len(y), len(C)
    x, nu, z, v = rate.expand(slots, n), rate.expand(slots, n), y, torch.ones_like(y)
    log_rate, sigma2 = rate.log(), noise_var[:, None]
    alpha = 1 - torch.exp(-rate)
    raw = dict(net.named_parameters())
    for layer in range(net.settings.num_layers):
        gamma = 1.15 + 0.85 * torch.tanh(raw["gain"][layer] + torch.atanh(y.new_tensor(-0.15 / 0.85)))
        beta = 1.25 + 0.75 * torch.tanh(raw["precision"][layer] + torch.atanh(y.new_tensor(-0.25 / 0.75)))
        tau = torch.exp(2 * torch.tanh(raw["temperature"][layer] / 2))
        eta, zeta = torch.sigmoid(raw["damping"][layer]), torch.sigmoid(raw["cnn_gate"][layer])
        d = sigma2.clamp(min=0.008)

        # output block
        v_new = nu @ C**2
        z_new = x @ C - gamma * (y - z) * (v_new / (d + v))
        z, v = eta * z + (1 - eta) * z_new, eta * v + (1 - eta) * v_new

        # input block
        kappa = beta / (d + v)
        V = 1 / (kappa @ (C**2).T)
        R = x + V * ((kappa * (y - z)) @ C.T)
        m, nu, active = _posterior(R, V, log_rate, tau, max_count)
        x = m
        spread = (log_rate - log_rate.mean()) / (log_rate.var(correction=0) + 1e-6).sqrt()
        doubt = nu.clamp(min=1e-8).sqrt()
        features = [R, V.sqrt(), m, doubt, alpha.expand_as(m), spread.expand_as(m)]
        correction = _cnn(net.cnn[layer], torch.stack(features, dim=1)).clamp(-3, 3)
        x = (1 - zeta) * m + zeta * (m + doubt * correction)

        # expectation maximisation
        c = (m.mean(0) ** 2 / nu.mean(0).clamp(min=1e-8)).mean()
        proposal = (m.sum(0) + log_rate.exp()) / (slots + 1)
        log_rate = log_rate + torch.sigmoid(raw["rate_gate"][layer]) * c / (1 + c) * (proposal.log() - log_rate)
        log_rate = torch.log(rate.sum() * torch.softmax(log_rate, dim=0))
        gate = torch.sigmoid(raw["activity_gate"][layer])
        alpha = (1 - gate) * (1 - torch.exp(-log_rate.exp())) + gate * active.mean(0)
        energy = ((y - z) * d / (d + v)) ** 2 + v * d / (d + v)
        factor = (energy.mean() / sigma2.mean()) ** torch.sigmoid(raw["noise_gate"][layer])
        sigma2 = sigma2 * factor
    return NetOutput(x, x.sum(1).mean(), sigma2[:, 0])


def _posterior(R: Tensor, V: Tensor, log_rate: Tensor, tau: Tensor, max_count: int) -> tuple[Tensor, Tensor, Tensor]:
    m = torch.arange(max_count + 1, dtype=R.dtype, device=R.device)
    log_weight = m * log_rate[:, None] - torch.lgamma(m + 1) - (R[..., None] - m) ** 2 / (2 * V[..., None])
    weight = torch.softmax(log_weight / tau, dim=-1)
    mean = weight @ m
    var = (weight * (m - mean[..., None]) ** 2).sum(-1)
    return mean, var, 1 - weight[..., 0]


def _cnn(cnn: nn.Module, features: Float[Tensor, "slots channels codewords"]) -> Float[Tensor, "slots codewords"]:
    p = dict(cnn.named_parameters())
    same = p["weight_in"].shape[2] // 2
    h = F.relu(F.conv1d(features, p["weight_in"], p["bias_in"], padding=same))
    h = F.relu(F.conv1d(h, p["weight_mid"], p["bias_mid"], padding=same))
    return F.conv1d(h, p["weight_out"], p["bias_out"], padding=same)[:, 0]
