"""The docs: pages that are made are current, words are plain, examples run."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools"))

LONGEST = 30
"""Words of a sentence."""
PLAIN = [ROOT / "README.md", DOCS / "paper" / "run-it.md", *DOCS.glob("*.md")]
PLAIN = sorted([*PLAIN, *(DOCS / "concepts").glob("*.md"), *(DOCS / "howto").glob("*.md")])


@pytest.mark.seconds
def test_tables_and_figures_are_those_of_the_expected_results_and_no_other_is_left():
    import study_pages

    current = study_pages.pages(DOCS)
    for path, text in current.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.relative_to(ROOT)} is out of date; run make pages"
    wanted = {path.name for path in current if path.suffix == ".svg"}
    assert {path.name for path in (DOCS / "figures").iterdir()} == wanted


@pytest.mark.seconds
def test_the_reference_is_that_of_this_source():
    import make_pages

    for path, text in make_pages.reference_pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.relative_to(ROOT)} is out of date; run make pages"


def test_a_study_that_is_not_measured_yet_leaves_no_page_broken(tmp_path, monkeypatch):
    import study_pages

    monkeypatch.setattr("aircomp.studies.expected.folder", lambda: tmp_path / "expected")
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text("<!-- arena training points awgn -->\nold\n<!-- end -->\n")
    made = study_pages.pages(page.parent)
    assert "Not measured yet: `aircomp arena --challenge awgn --task training --seeds 3`." in made[page]
    assert "# Results" in made[page.parent / "results" / "index.md"]
    assert "Not measured yet" in made[page.parent / "arena" / "blind.md"]


def test_cells_of_a_table_stay_cells():
    import study_pages

    from aircomp.report.page import Table

    table = Table("Claims", {"x": "value", "m": "margin"}, [{"x": 0.5, "x_std": 0.1, "m": "|A − B| < 1"}], "Why.")
    lines = ["**Claims**", "", "| value | margin |", "| --- | --- |", r"| 0.5 ± 0.1 | \|A − B\| < 1 |", "", "Why."]
    assert study_pages.markdown(table).splitlines() == lines


def sentences(text):
    """The sentences of a Markdown page, without code, tables, headings and addresses."""
    text = re.sub(r"^```.*?^```|<!--.*?-->|^<.*?>$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\][(\[][^)\]]*[)\]]", r"\1", text)
    for block in re.split(r"\n\s*\n|\n(?=[-*|#\d])", text):
        if not block.lstrip().startswith(("|", "#")):
            yield from re.split(r"(?<=[.!?:])\s+", " ".join(block.split()))


@pytest.mark.parametrize("page", PLAIN, ids=lambda path: path.stem)
def test_no_sentence_is_too_long(page):
    for sentence in sentences(page.read_text(encoding="utf-8")):
        assert len(sentence.split()) <= LONGEST, sentence


def test_a_long_sentence_is_found():
    text = "# Title\n\nShort one. " + "word " * 31 + "end.\n\n```\n" + "code " * 40 + "\n```\n"
    assert max(len(sentence.split()) for sentence in sentences(text)) == 32


TOPICS = sorted({*(DOCS / "concepts").glob("*.md"), *(DOCS / "howto").glob("*.md")})
TOPICS = [page for page in TOPICS if page.stem not in ("index", "glossary", "snr")]
TOPICS += [DOCS / "other-software.md", DOCS / "paper" / "run-it.md"]


@pytest.mark.parametrize("page", TOPICS, ids=lambda path: path.stem)
def test_a_topic_begins_with_what_to_take(page):
    beginning = page.read_text(encoding="utf-8").split("\n## ")[:3]
    assert re.search(r"^\| ?(You have …|You want …|your radio) ?\| ?take", "".join(beginning), re.I | re.M), page.name


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built once for all tests of this file."""
    pytest.importorskip("mkdocs", reason="make docs installs it")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.process
def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(site, tmp_path):
    from check_site import faults

    assert faults(site) == []
    page = tmp_path / "index.html"
    page.write_text(
        (site / "index.html").read_text() + '<script src="https://example.org/x.js"></script><img src="x.png">'
    )
    assert len(faults(tmp_path)) == 2


@pytest.mark.process
def test_formulas_are_drawn(site):
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert [path.name for path, text in pages.items() if 'class="arithmatex"' in text] == []
    assert pages[site / "reference" / "python.html"].count("<math ") >= 5


@pytest.mark.process
@pytest.mark.browser
def test_the_search_finds_from_files_and_leaves_experiments_out(site):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium: install it to see the site in a real browser")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
    address = f"{(site / 'index.html').as_uri()}?q=codeword"
    done = subprocess.run([chromium, *flags, address], capture_output=True, text=True, timeout=120)
    assert int(re.findall(r"(\d+) matching documents", done.stdout)[0]) > 10
    assert re.findall(r'md-search-result__link" href="[^"]*/notebook/2', done.stdout) == []


CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_a_page_shows_the_files_of_the_examples_as_they_are():
    shown = 0
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        for file in set(re.findall(r"(?:This is|This is the whole of|The file is) `(examples/\S+\.py)`", text)):
            assert (ROOT / file).read_text(encoding="utf-8") in CODE.findall(text), f"{page.name}: {file}"
            shown += 1
        assert "--8<--" not in text, f"{page.name}: only the site would show what is included"
    assert shown >= 10


@pytest.mark.parametrize("page", sorted((DOCS / "concepts").glob("*.md")), ids=lambda path: path.stem)
def test_formulas_need_no_renderer(page):
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"\$[^$\n]+\$", prose) == []


RUNNABLE = [ROOT / "README.md", DOCS / "paper" / "run-it.md"]
RUNNABLE += [
    DOCS / "howto" / f"{name}.md" for name in ("model", "data", "decoder", "channel", "rule", "scheme", "compare")
]


@pytest.mark.seconds
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda path: path.stem)
def test_the_examples_of_a_page_run(page, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])  # where readers save the examples
    ran = 0
    for code in CODE.findall(page.read_text(encoding="utf-8")):
        exec(compile(re.sub(r"rounds=\d+", "rounds=1", code), str(page), "exec"), {"__name__": "example"})
        ran += 1
    assert ran
