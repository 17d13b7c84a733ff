"""See that a built site loads nothing from other hosts, and that every image has a description.

python tools/check_site.py build/site
"""

import re
import sys
from pathlib import Path

LOADED = re.compile(r'(?:<(?:script|img|iframe|source)[^>]*\ssrc|<link[^>]*\shref)="?(?:https?:)?//[^">\s]+')
IN_STYLE = re.compile(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')\s]+")
IMAGE = re.compile(r"<img(?![^>]*\salt=\"?[^\">\s])[^>]*>")


def faults(site: Path) -> list[str]:
    """Return what is wrong, a sentence each."""
    found = []
    for page in sorted(site.rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        found += [f"{page}: loads {each}" for each in LOADED.findall(text) if 'rel="canonical"' not in each]
        found += [f"{page}: an image has no alt text: {each[:80]}" for each in IMAGE.findall(text)]
    for style in sorted(site.rglob("*.css")):
        found += [f"{style}: loads {each}" for each in IN_STYLE.findall(style.read_text(encoding="utf-8"))]
    return found


if __name__ == "__main__":
    wrong = faults(Path(sys.argv[1]))
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))
