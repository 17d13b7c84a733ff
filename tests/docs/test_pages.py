"""The docs: pages that are made are current, words are plain, examples run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from aircomp.comparison.docs import pages as arena_pages
from aircomp.reproduce import docs as made
from aircomp.reproduce.catalogue import RESULTS
from aircomp.reproduce.docs import Expected, figure_of, pages, tables_of
from aircomp.reproduce.scales import SCALES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "tools"))

LONGEST = 30
"""Words of a sentence."""
PLAIN = sorted([DOCS / "index.md", DOCS / "get-started.md", *(DOCS / "concepts").glob("*.md")])


@pytest.mark.seconds
def test_tables_and_figures_are_those_of_the_expected_results_and_no_other_is_left():
    current = pages(DOCS) | arena_pages(DOCS)
    for path, text in current.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.relative_to(ROOT)} is out of date; run make pages"
    wanted = {path.name for path in current if path.suffix == ".svg"}
    assert {path.name for path in (DOCS / "figures").iterdir()} == wanted


@pytest.mark.seconds
def test_the_reference_is_that_of_this_source():
    import make_pages

    for path, text in make_pages.reference_pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.relative_to(ROOT)} is out of date; run make pages"


def expectation(*rows):
    about = {"version": "1", "environment": {"torch": "2"}, "core_seconds": 60.0}
    return Expected(RESULTS["fed_accuracy"], SCALES["digits"], about | {"rows": list(rows)})


def row(uplink, snr_db, accuracy, values=None):
    found = {"uplink": uplink, "snr_db": snr_db, "test_accuracy_last5": accuracy, "test_accuracy_last5_band": 0.02}
    return found | ({} if values is None else {"test_accuracy_last5_std": 0.1, "test_accuracy_last5_values": values})


def test_a_table_puts_snrs_beside_each_other_and_the_paper_below():
    every = expectation(row("perfect", None, 0.9), row("amp-da", 0.0, 0.5, [0.4, 0.6]), row("amp-da", 5.0, 0.7))
    (table,) = tables_of(every)
    assert made.markdown(table).splitlines()[2:-2] == [
        "| uplink | no noise | 0 dB | 5 dB |",
        "| --- | --- | --- | --- |",
        "| perfect | 0.9 | – | – |",
        "| perfect, the paper | 0.804 | – | – |",
        "| amp-da | – | 0.5 ± 0.1 | 0.7 |",
        "| amp-da, the paper | – | 0.139 | 0.525 |",
    ]
    figure = figure_of(every)
    assert figure is not None
    assert "amp-da 0.5 at 0 to 0.7 at 5" in figure.alt


def test_a_claim_is_judged_only_where_the_value_of_each_seed_is_kept():
    ten = [0.9 + 0.001 * i for i in range(10)]
    poor = [0.5 - 0.001 * i for i in range(10)]
    kept = expectation(row("perfect", None, 0.9, ten), row("amp-da", 0.0, 0.5, poor))
    assert [claim["verdict"] for claim in kept.claims["paper"]] == ["seen on digits"]
    assert kept.claims["ours"] == []
    older = expectation(row("perfect", None, 0.9), row("amp-da", 0.0, 0.5))
    assert [claim["verdict"] for claim in older.claims["paper"]] == ["not judged on digits"]


def test_a_file_that_is_not_measured_yet_or_empty_leaves_no_page_broken(tmp_path, monkeypatch):
    monkeypatch.setattr(made, "folder", lambda scale: tmp_path / "expected" / scale)
    assert [path.name for path in pages(tmp_path / "docs")] == ["index.md"]
    (tmp_path / "expected" / "desktop").mkdir(parents=True)
    empty = '{"version": "1", "environment": {"torch": "2"}, "core_seconds": 0, "rows": []}'
    for name in ("from_scratch", "batch_norm"):
        (tmp_path / "expected" / "desktop" / f"{name}.json").write_text(empty)
    assert {path.name for path in pages(tmp_path / "docs")} == {"index.md", "desktop.md"}


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


@pytest.mark.process
def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="make docs installs it")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    from check_site import faults

    assert faults(tmp_path / "site") == []
    page = tmp_path / "site" / "index.html"
    page.write_text(page.read_text() + '<script src="https://example.org/x.js"></script><img src="x.png">')
    assert len(faults(tmp_path / "site")) == 2


def test_a_page_names_the_files_that_the_site_puts_into_it():
    shown = {
        page: re.findall(r'--8<-- "(examples/.*)"', page.read_text(encoding="utf-8")) for page in DOCS.rglob("*.md")
    }
    assert sum(map(len, shown.values())) >= 6
    for page, files in shown.items():
        for file in files:
            assert f"`{file}` in the repository" in page.read_text(encoding="utf-8"), f"{page.name}: {file}"


CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
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
        if "--8<--" not in code:  # files of examples/ are run by themselves
            exec(compile(re.sub(r"rounds=\d+", "rounds=1", code), str(page), "exec"), {"__name__": "example"})
            ran += 1
    assert ran
