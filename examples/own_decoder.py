"""Write your own decoder: ridge regression towards the prior mean, then exact rounding."""

import torch

import aircomp
from aircomp.decoders.base import BaseDecoder
from aircomp.decoders.heard import hear


class RidgeDecoder(BaseDecoder):
    def __init__(self, codebook):
        self.codebook = codebook

    def infer(self, seen):
        heard = hear(self.codebook, seen)  # checks all arguments, and scales slots that are far too strong
        exact = heard.exact()  # without noise, rounding alone may explain every slot
        if exact is not None:
            return exact
        C, y, popularity = heard.codebook, heard.received, heard.popularity
        direction = popularity @ C
        estimate = float(y.mean(dim=0) @ direction / direction.square().sum().clamp(min=1e-9))
        hat = max(estimate, 0.0) if heard.num_active is None else heard.num_active
        prior = hat * popularity
        spread = C.T @ (prior[:, None] * C)  # covariance of the signal under independent Poisson counts
        noise = float(((y - prior @ C).square().mean() - spread.trace() / C.shape[1]).clamp(min=1e-4))
        gain = torch.linalg.solve(spread + noise * torch.eye(C.shape[1]), C.T * prior)
        mean = prior + (y - prior @ C) @ gain
        return heard.conclude(mean, y.new_full((len(y),), noise), hat)  # clips, rounds, and forms the result


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
