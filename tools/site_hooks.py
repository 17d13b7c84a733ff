"""What `make docs` does beside mkdocs.

Formulas become MathML, which browsers draw without a script. The search leaves out the dated notebook of experiments.
"""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\(\(|\[)(.*?)\\[)\]]</\1>', re.DOTALL)
"""A formula as the extension arithmatex leaves it."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # Any: a page of mkdocs, which not all of us install
    """Keep what was tried once out of the search."""
    if page.file.src_path.startswith("notebook/2"):
        page.meta["search"] = {"exclude": True}
    return markdown


def on_page_content(content: str, **_: Any) -> str:
    """Return a page with its formulas drawn."""
    return FORMULA.sub(_drawn, content)


def _drawn(found: re.Match[str]) -> str:
    kind, bracket, formula = found.groups()
    shown = convert(html.unescape(formula).strip(), display="block" if bracket == "[" else "inline")
    return f'<{kind} class="formula">{shown}</{kind}>'
