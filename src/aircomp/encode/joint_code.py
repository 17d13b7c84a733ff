r"""A joint code: the codebook of a round, made from what its codewords stand for (our addition).

With matched energies (`aircomp.encode.energy`) a codeword that stands for much is loud, but all are equally far from each
other. Here codewords also lean towards what they stand for. So two that stand for nearly the same sound nearly the same, and
to take one for the other costs little:

$$c_j = \sqrt{e_j}\,\frac{b_j + t_j\,u_j B}{\|b_j + t_j\,u_j B\|}, \qquad u_j = q_j / \|q_j\|$$

$b_j$ is a row of a fixed codebook, $B$ has as many orthonormal rows as a fragment has parameters. A small network, the same
for every codeword, says by which factors energy $e_j$ and lean $t_j$ differ from a rule: matched energies, and a lean that
falls with the noise. In little noise it is zero, and the code is that of matched energies.

    Q, popularity, noise, devices ──► rule ──► × exp(network) ──► energies of mean one, directions of length one
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aircomp.encode.energy import LEAST_NOISE, MOST_NOISE, SHORTEST, Shaped, codeword_energies, scale_to_one
from aircomp.encode.settings import JointCodeSettings

NO_LEAN, LEAN_PER_E = 5.0, 0.6
"""The rule: up to this energy of the noise in a slot, over that of a codeword, no codeword leans; and by what all of them
lean for every factor e beyond it. Chosen by eye on training and validation rounds. With less noise, which is three devices
above −2 dB and ten above 3 dB, a lean cost more on ResNet than it won on digits; at −10 dB leans of 1 to 2 were best."""
MOST_LEAN = 1.0
"""Of a codeword, however much noise there is: message passing of forty devices explodes in some slots where codewords lean by
1.3."""
MOST = 2.0
"""Logarithm of the largest factor by which the network may change energy or lean."""
FULL_FROM = 0.5
"""Lean of the rule from which on the network has its full say over energies; below it fades, to none at a lean of zero."""
LEAST_SHARE = 0.05
"""Of the mean popularity: what rarer codewords are taken for."""
FEATURES, OUTPUTS = 7, 2


class JointCode(nn.Module):
    """The network, which begins as the rule.

    Args:
        settings: Its size.
        rng: What its first layers are drawn from; the last begins at zero.
    """

    def __init__(self, settings: JointCodeSettings, rng: torch.Generator):
        super().__init__()
        self.settings, width = settings, settings.width
        layers = nn.Linear(FEATURES, width), nn.Linear(width, width), nn.Linear(width, OUTPUTS)
        for layer in layers:
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5, generator=rng)
            nn.init.zeros_(layer.bias)
        nn.init.zeros_(layers[-1].weight)
        self.network = nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    def forward(
        self,
        words: Float[Tensor, "codewords fragment"],
        popularity: Float[Tensor, " codewords"],
        noise_var: float,
        num_active: float,
        peak: float,
        base: Float[Tensor, "codewords uses"],
        spread: Float[Tensor, "fragment uses"],
    ) -> Shaped:
        """Return the codewords of a round.

        Args:
            words: What each codeword stands for.
            popularity: How often each is chosen.
            noise_var: Noise variance per channel use, beside codewords of mean energy one.
            num_active: Devices that send at once.
            peak: The most energy of a codeword.
            base: Unit-norm directions to lean from.
            spread: Orthonormal rows: where each parameter of a fragment leans to.
        """
        noise_var, num_active = min(max(noise_var, LEAST_NOISE), MOST_NOISE), max(num_active, 1.0)
        noise = noise_var * base.shape[1]  # the energy of a slot's noise, that of a codeword being one
        lean = max(LEAN_PER_E * math.log(noise / NO_LEAN), 0.0)
        energies = codeword_energies(words, popularity, noise_var, peak)
        factors = self.network(features(words, popularity, noise / num_active, num_active).to(base))
        louder, closer = (MOST * torch.tanh(factors / MOST)).unbind(1)
        energies = energies * (min(lean / FULL_FROM, 1.0) * louder.double()).exp()
        towards = nn.functional.normalize(words.to(base), dim=1, eps=torch.finfo(base.dtype).tiny) @ spread
        directions = base + (lean * closer.exp()).clamp(max=MOST_LEAN)[:, None] * towards
        return Shaped(mean_one(energies, popularity, peak), nn.functional.normalize(directions, dim=1), lean > 0)


def features(
    words: Float[Tensor, "codewords fragment"], popularity: Float[Tensor, " codewords"], noise: float, devices: float
) -> Float[Tensor, "codewords 7"]:
    """Return what the network sees of every codeword, all about one: its own worth and share, those of all, the radio."""
    shares = popularity.double() / popularity.double().sum()
    worth = words.double().square().sum(dim=1)
    mean = (shares @ worth).clamp(min=torch.finfo(worth.dtype).tiny)
    worth = (worth / mean).clamp(min=SHORTEST).log()
    centre = shares @ worth
    spread = (shares @ (worth - centre).square()).sqrt()
    entropy = torch.special.entr(shares).sum() / math.log(len(shares))
    own = [worth / 3, (len(shares) * shares + LEAST_SHARE).log() / 2]
    of_all = torch.stack(
        [
            centre / 3,
            spread / 3,
            entropy,
            shares.new_tensor(math.log(noise) / 3),
            shares.new_tensor(math.log(devices) / 2),
        ]
    )
    return torch.cat([torch.stack(own, dim=1), of_all.expand(len(shares), -1)], dim=1)


def mean_one(
    energies: Float[Tensor, " codewords"], shares: Float[Tensor, " codewords"], peak: float
) -> Float[Tensor, " codewords"]:
    """Return energies of mean one under shares, none above the peak; gradients know that those below it compete."""
    shares = shares.double() / shares.double().sum()
    scaled = energies * scale_to_one(energies.detach(), shares, peak)
    below = scaled < peak
    rest = 1 - peak * shares[~below].sum()
    # a multiplication by one, but for its gradient
    return torch.where(below, scaled * (rest / (shares[below] @ scaled[below])), peak)
