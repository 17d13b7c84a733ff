"""Schemes by kind, from what is said on their classes."""

from aircomp.common.settings import setting_paths
from aircomp.schemes.digital.link import Digital
from aircomp.schemes.registry import scheme_class
from aircomp.schemes.settings import SchemeSettings, scheme_names

RIVALS = [
    name for name in scheme_names() if scheme_class(name).uses_radio and not issubclass(scheme_class(name), Digital)
]
"""Those that send no codewords of a shared codebook."""


def needs_phase(name: str) -> bool:
    """Whether a scheme needs signals that arrive in phase."""
    return scheme_class(name).facts.needs.startswith("in phase")


def uses_air(name: str) -> bool:
    """Whether a scheme sends anything; the others are told what devices have, and are bounds."""
    return scheme_class(name).facts.needs != "none"


def sized(
    name: str,
    *,
    fragment_length: int | None = None,
    num_codewords: int | None = None,
    codeword_length: int | None = None,
    **options: object,
) -> SchemeSettings:
    """Return a scheme's settings with those of the sizes that it has."""
    sizes = {"quantize.fragment_length": fragment_length, "quantize.num_codewords": num_codewords}
    sizes["codeword_length"] = codeword_length
    model = scheme_class(name).settings_class
    known = {path: size for path, size in sizes.items() if size is not None and path in setting_paths(model)}
    return model(name=name).changed(**known, **options)
