"""GAMP as a decoder: message passing with a Poisson prior on the counts.

received ──► PilotEstimator: K, rates, noise ──► rates of every slot ──► GAMP on all slots ──► counts
"""

from jaxtyping import Float
from torch import Tensor

from aircomp.common.snr import SnrReference
from aircomp.decode.base import BaseDecoder, Decoded, Observation, check_codebook
from aircomp.decode.heard import hear
from aircomp.decode.pilot import PilotEstimator
from aircomp.errors import ConfigError


class Gamp(BaseDecoder):
    """GAMP with a Poisson prior whose rates, number of devices and noise are estimated from the whole round.

    Args:
        codebook: Unit-norm codewords, one a row.
        snr_reference: Whether the noise variance is one for the round, or follows the power of each `slot`.
        iterations: Of message passing; more than ten change little.
        agreement: Probability that two devices of a slot choose alike beyond that of independent draws.
        chunk: Slots computed at a time; bounds the temporaries, changes nothing else.
    """

    def __init__(
        self,
        codebook: Float[Tensor, "codewords uses"],
        *,
        snr_reference: SnrReference = "round",
        iterations: int = 10,
        agreement: float = 0.0,
        chunk: int = 512,
    ):
        if iterations < 1 or chunk < 1:
            raise ConfigError(f"iterations {iterations}, chunk {chunk}: expected at least one of each")
        if not 0 <= agreement < 1:
            raise ConfigError(f"agreement is {agreement}; expected a probability from 0 to below 1")
        self.codebook = check_codebook(codebook)
        self.pilot = PilotEstimator(
            codebook, snr_reference=snr_reference, agreement=agreement, iterations=iterations, chunk=chunk
        )

    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot; with side information in two passes (`aircomp.decode.side`)."""
        heard = hear(self.codebook, seen)
        exact = heard.exact()
        if exact is not None:
            return exact
        shared, noise = self.pilot.estimate(heard.received, heard.popularity, heard.num_active, heard.noise_var)
        rate = self.pilot.slot_rates(heard.received, noise, shared.rate, seen.slot_layers, seen.bs_indices)
        return heard.conclude(self.pilot.means(heard.received, noise, rate), noise, shared.num_active)
