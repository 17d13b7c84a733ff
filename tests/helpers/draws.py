"""Random inputs: updates, and rounds on the air. None of it uses the channel or the decoders that are under test."""

import torch

from aircomp.common.rng import generator
from aircomp.encode.codebook import count


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def update_like(num: int, fragment_length: int = 20, seed: int = 0) -> torch.Tensor:
    """Draw fragments as model updates have them: 1e-4 in size, a few thirty times as large."""
    rng = seeded(seed)
    size = 1e-4 * torch.exp(1.2 * torch.randn(num, 1, generator=rng))
    return size * torch.randn(num, fragment_length, generator=rng)


def draw_indices(popularity: torch.Tensor, num_slots: int, num_active: int, *, rng: torch.Generator) -> torch.Tensor:
    """Let every device choose a codeword for each slot, independently."""
    chances = popularity.expand(num_active, -1)
    return torch.multinomial(chances, max(1, num_slots), replacement=True, generator=rng)[:, :num_slots]


def add_noise(counts: torch.Tensor, codebook: torch.Tensor, snr_db: float, *, reference="round", rng: torch.Generator):
    """Send counts and return what is received with each slot's noise variance."""
    signal = counts.float() @ codebook
    power = signal.square().mean(1)
    noise_var = (power if reference == "slot" else power.mean().expand_as(power)) / 10 ** (snr_db / 10)
    return signal + noise_var.sqrt()[:, None] * torch.randn(signal.shape, generator=rng), noise_var


def zipf_round(
    num_slots: int,
    num_active: int,
    snr_db: float,
    codebook: torch.Tensor,
    *,
    reference: str = "round",
    agreement: float = 0.0,
    seed: int = 0,
):
    """Draw a round of Zipf-like choices that the base station's popularity tells only roughly.

    Args:
        num_slots: Slots of the round; may be none.
        num_active: Devices that take part.
        snr_db: Signal-to-noise ratio.
        codebook: One codeword a row.
        reference: Whether the noise follows each `slot`'s power or that of the `round`.
        agreement: How often a device copies another one.
        seed: Another round for each.

    Returns:
        What is received, the popularity, the counts, and each slot's noise variance.
    """
    rng = generator(seed, "round", num_active)
    zipf = torch.arange(1.0, len(codebook) + 1) ** -1.2
    popularity, truth = (zipf * torch.exp(0.3 * torch.randn(len(zipf), generator=rng)) for _ in range(2))
    indices = draw_indices(truth, num_slots, num_active, rng=rng)
    if agreement:
        source = torch.randint(num_active, indices.shape, generator=rng)
        copies = torch.rand(indices.shape, generator=rng) < agreement * num_active / 2
        indices = torch.where(copies, indices.gather(0, source), indices)
    counts = count(indices, len(codebook))
    received, noise_var = add_noise(counts, codebook, snr_db, reference=reference, rng=rng)
    return received, popularity / popularity.sum(), counts, noise_var


def accuracy(counts: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the share of devices' choices that were counted right, over slots."""
    return (1 - (counts - truth).abs().sum(1) / truth.sum(1)).clamp(0, 1).mean().item()
