"""Every scheme by name. A scheme enters by the decorator `scheme` on its class, one of the package or a user's own.

    @scheme("reed", sends="its update, as energies of two tones", needs="any channel, many antennas", source="Chen 2026")
    class Reed(MeanScheme): …

What is said of a scheme (lists, help, docs, arena, checks) is read from its class.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from aircomp.common.checks import check_number, check_type
from aircomp.errors import ConfigError
from aircomp.schemes.base import Scheme, SchemeContext
from aircomp.schemes.settings import SCHEMES, SchemeSettings, scheme_names

C = TypeVar("C", bound=type[Scheme])


Checked = Literal["verified", "derived", "recalled"]
"""verified: compared with the paper's text or its authors' code. derived: from an abstract or from theory. recalled: known
from descriptions by others. `docs/paper/divergences.md` has the details."""


@dataclass(frozen=True)
class Facts:
    """A scheme in a few words."""

    sends: str
    """What a device sends."""
    needs: str
    """The channel that it needs: begins with `none` (it uses none), `in phase` (signals of equal phase) or `any`."""
    source: str
    """Who invented it."""
    ours: bool = False
    """Whether that is this package."""
    checked: Checked = "derived"
    """How sure it is that this is what the source describes."""
    against: str | None = None
    """The closed form or the published algorithm that its test compares with; None: nothing is said."""


def scheme(
    name: str,
    *,
    sends: str,
    needs: str,
    source: str,
    ours: bool = False,
    checked: Checked = "derived",
    against: str | None = None,
) -> Callable[[C], C]:
    """Enter a class as a scheme under a name.

    Args:
        name: What settings, the command line and results call it.
        sends: What a device sends, in a few words.
        needs: The channel that it needs; begins with `none`, `in phase` or `any`.
        source: Who invented it.
        ours: Whether that is this package.
        checked: How sure it is that this is what the source describes.
        against: The closed form or the published algorithm that its test compares with.

    Raises:
        ConfigError: If another class has the name, or `needs` begins otherwise.
    """
    if not needs.startswith(("none", "in phase", "any")):
        raise ConfigError(
            f"the scheme {name!r} needs {needs!r}; expected words that begin with 'none', 'in phase' or 'any'"
        )

    def enter(entered: C) -> C:
        SCHEMES.enter(name, entered)
        entered.name, entered.facts = name, Facts(sends, needs, source, ours, checked, against)
        return entered

    return enter


uplink_names = scheme_names
"""Its name in the public API, where a setting is called `uplink`."""


def scheme_class(name: str) -> type[Scheme]:
    """Return the class of a scheme.

    Raises:
        ConfigError: If there is none of that name.
    """
    return SCHEMES[name]


def make_scheme(settings: SchemeSettings | str, context: SchemeContext | None = None) -> Scheme:
    """Build a scheme.

    Args:
        settings: Of the scheme's own class, or one of `scheme_names()` with the usual ones.
        context: What it is made for: the model's tensors, the seed, where to compute.
    """
    if isinstance(settings, str):
        settings = scheme_class(settings).settings_class(name=settings)
    context = context or SchemeContext()
    check_type("settings", settings, SchemeSettings, "the settings of a scheme, or its name")
    check_type("context", context, SchemeContext, "a SchemeContext")
    check_number("seed", context.seed, low=0, integer=True)
    return scheme_class(settings.name).make(settings, context)
