"""GAMP as a decoder: message passing with a Poisson prior on the counts.

received ──► PilotEstimator: K, rates, noise ──► rates of every slot ──► GAMP on all slots ──► counts

With short codewords the slots whose counts do not fit are decoded once more (`aircomp.decoders.amp.repair`).
"""

from jaxtyping import Float
from torch import Tensor

from aircomp.common.radio import SnrReference
from aircomp.decoders.amp.repair import repair
from aircomp.decoders.base import BaseDecoder, Decoded, Observation, check_codebook
from aircomp.decoders.estimate.pilot import PilotEstimator
from aircomp.decoders.heard import hear
from aircomp.decoders.settings import GampSettings

FEW_USES = 16
"""Codewords of so many uses or fewer leave message passing too little to average over: slots that do not fit are repaired."""


class Gamp(BaseDecoder):
    """GAMP with a Poisson prior whose rates, number of devices and noise are estimated from the whole round.

    Args:
        codebook: Unit-norm codewords, one a row.
        settings: Its options.
        snr_reference: Whether the noise variance is one for the round, or follows the power of each `slot`.
        unit_norm: Whether the codewords must have unit norm (`with_codebook`).
    """

    passes = 10

    def __init__(
        self,
        codebook: Float[Tensor, "codewords uses"],
        settings: GampSettings | None = None,
        *,
        snr_reference: SnrReference = "round",
        unit_norm: bool = True,
    ):
        self.settings = settings or GampSettings()
        self.snr_reference: SnrReference = snr_reference
        self.codebook = check_codebook(codebook, unit_norm=unit_norm)
        self.pilot = PilotEstimator(
            codebook,
            snr_reference=snr_reference,
            agreement=self.settings.agreement,
            iterations=self.settings.iterations,
            unit_norm=unit_norm,
        )

    def with_codebook(self, codebook: Float[Tensor, "codewords uses"]) -> "Gamp":
        """Return the decoder of another codebook, whose codewords may differ in energy."""
        return Gamp(codebook, self.settings, snr_reference=self.snr_reference, unit_norm=False)

    def infer(self, seen: Observation) -> Decoded:
        """Estimate the counts of every slot; with side information in two passes (`aircomp.decoders.side`)."""
        heard = hear(self.codebook, seen)
        exact = heard.exact()
        if exact is not None:
            return exact
        shared, noise = self.pilot.estimate(heard.received, heard.popularity, heard.num_active, heard.noise_var)
        rate = self.pilot.slot_rates(heard.received, noise, shared.rate, seen.slot_layers, seen.bs_indices)
        mean = self.pilot.means(heard.received, noise, rate)
        if self.codebook.shape[1] <= FEW_USES:
            mean = repair(heard.received, heard.codebook, mean, noise, rate, shared.num_active)
        return heard.conclude(mean, noise, shared.num_active, shared.num_active_error)
