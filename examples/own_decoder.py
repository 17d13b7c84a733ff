"""Write your own decoder: ridge regression towards the prior mean, then exact rounding."""

import torch

import aircomp
from aircomp.decode.rounding import round_to_sum


class RidgeDecoder:
    def __init__(self, codebook):
        self.codebook = codebook

    def decode(self, received, popularity, *, num_active=None, **side_information):
        C, popularity = self.codebook, popularity / popularity.sum()
        direction = popularity @ C
        hat = float(received.mean(dim=0) @ direction / direction.square().sum()) if num_active is None else num_active
        prior = max(hat, 0.0) * popularity
        spread = C.T @ (prior[:, None] * C)  # covariance of the signal under independent Poisson counts
        noise = float(((received - prior @ C).square().mean() - spread.trace() / C.shape[1]).clamp(min=1e-4))
        gain = torch.linalg.solve(spread + noise * torch.eye(C.shape[1]), C.T * prior)
        mean = (prior + (received - prior @ C) @ gain).clamp(min=0)
        return aircomp.Decoded(round_to_sum(mean, max(0, round(hat))), mean, hat, torch.full((len(received),), noise))


if __name__ == "__main__":
    rng = torch.Generator().manual_seed(0)
    popularity = torch.arange(1, 129).float().reciprocal()
    choices = torch.multinomial(popularity.expand(2000, -1), 10, replacement=True, generator=rng)
    counts = torch.nn.functional.one_hot(choices, 128).sum(dim=1)
    codebook = aircomp.make_codebook("two-bases", 128, 64, rng=rng)
    received = aircomp.transmit(counts, codebook, snr_db=10.0, rng=rng)
    for decoder in (RidgeDecoder(codebook), aircomp.make_decoder("gamp", codebook)):
        decoded = decoder.decode(received, popularity)
        wrong = (decoded.counts - counts).abs().sum(dim=1) / 10
        print(
            f"{type(decoder).__name__:13} accuracy {1 - wrong.clamp(max=1).mean():.3f}, K {decoded.num_active_hat:.2f}"
        )
    run = aircomp.simulate("digits", decoder=RidgeDecoder(codebook), snr_db=20.0, rounds=5)
    print(f"five rounds of digits over it: test accuracy {run.metrics[-1]['test_accuracy']:.3f}")
