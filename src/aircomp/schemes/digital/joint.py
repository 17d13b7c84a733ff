"""The joint code: codewords that lean towards what they stand for, by a trained network (`encode/joint_code.py`)."""

from aircomp.common import rng as rngs
from aircomp.encode.codebook import random_rotation
from aircomp.encode.energy import Shaped
from aircomp.encode.joint_code import JointCode
from aircomp.errors import ConfigError
from aircomp.layer.joint_code import JointLayer
from aircomp.schemes.base import NOISE_VAR, Broadcast, Scheme, SchemeContext
from aircomp.schemes.digital.energies import POPULARITY, UnequalCodewords
from aircomp.schemes.digital.gamp import GampLink
from aircomp.schemes.digital.link import NUM_ACTIVE, Digital
from aircomp.schemes.digital.pilots import Pilots
from aircomp.schemes.digital.repetition import Repetition
from aircomp.schemes.registry import scheme
from aircomp.schemes.settings import GampLinkSettings, JointCodeLinkSettings


class JointCodewords(UnequalCodewords):
    """Codewords that lean towards what they stand for.

    Args:
        link: Chooses codewords and counts them.
        code: Makes the codewords of every round.
        peak: The most energy of a codeword, where the mean is one.
    """

    needed = (NOISE_VAR, NUM_ACTIVE)

    def __init__(self, link: Digital, code: JointCode, peak: float | None = None):
        super().__init__(link, peak)
        length, uses = link.settings.fragment_length, link.codebook.shape[1]
        if length >= uses:
            raise ConfigError(
                f"quantize.fragment_length = {length}, but {link.name!r} needs fewer parameters than the {uses} uses of a "
                "codeword; shorten fragments or lengthen codewords"
            )
        self.code = code
        self.spread = random_rotation(uses, rngs.generator(self.context.seed, "lean"))[:length].to(link.codebook)

    def _shaped(self, broadcast: Broadcast) -> Shaped:
        values = broadcast.values
        noise_var, num_active = float(values[NOISE_VAR]), float(values[NUM_ACTIVE])
        words, popularity = values["codebook"], values[POPULARITY]
        return self.code(words, popularity, noise_var, num_active, self.peak, self.codebook, self.spread)


@scheme(
    "joint-net",
    sends="codewords that a trained network turns towards what they stand for",
    needs="in phase",
    source="this package, trained; joint source-channel coding",
    ours=True,
)
class JointNet(Digital):
    """GAMP with the joint code."""

    settings_class = JointCodeLinkSettings

    @classmethod
    def make(cls, settings: JointCodeLinkSettings, context: SchemeContext) -> Scheme:
        """Wrap the code around GAMP's link."""
        if context.block_uses:  # gains that differ would undo the energies that devices agreed on
            raise ConfigError(
                f"uplink = {cls.name!r} needs devices that arrive equally loud, but the channel fades; use channel.kind = "
                "'awgn', or uplink = 'gamp'"
            )
        same = {
            name: getattr(settings, name) for name in ("quantize", "codeword_length", "side_information", "decoder")
        }
        link = GampLink.make(GampLinkSettings(name="gamp", codebook="two-bases", **same), context)
        assert isinstance(link, Digital)
        link.name = cls.name
        code = JointLayer.load(settings.layer, device=context.device).code
        found = JointCodewords(link, code, settings.peak)
        if settings.repeat != 1:
            found = Repetition(found, settings.repeat)
        return found if settings.pilots == 0 else Pilots(found, settings.pilots, equal=False)
