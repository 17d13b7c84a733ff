"""What `make docs` does to pages beside mkdocs: formulas become MathML, which browsers draw without a script."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\(\(|\[)(.*?)\\[)\]]</\1>', re.DOTALL)
"""A formula as the extension arithmatex leaves it."""


def on_page_content(content: str, **_: Any) -> str:
    """Return a page with its formulas drawn."""
    return FORMULA.sub(_drawn, content)


def _drawn(found: re.Match[str]) -> str:
    kind, bracket, formula = found.groups()
    shown = convert(html.unescape(formula).strip(), display="block" if bracket == "[" else "inline")
    return f'<{kind} class="formula">{shown}</{kind}>'
