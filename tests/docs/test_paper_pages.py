"""The pages about the paper: what they name exists, what they state of numbers is so, and links lead somewhere."""

import importlib
import re
import unicodedata
from pathlib import Path

import pytest
import torch

from aircomp.decoders.net.amp_da_net import AmpDaNet
from aircomp.decoders.settings import AmpDaNetSettings
from aircomp.federation.experiment import Experiment
from aircomp.federation.simulate import make_link
from aircomp.train.recipe import PAPER_PRESETS as PRESETS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RUN_IT, DIVERGENCES = DOCS / "paper" / "run-it.md", DOCS / "paper" / "divergences.md"

TEST = re.compile(r"`((?:tests/[\w/]+/)?test_\w+\.py)(?:::(test_\w+))?`")
NAME = re.compile(r"`(aircomp(?:\.\w+)+)`")
LINK = re.compile(r"\[[^\]\n]*(?:\n[^\]\n]*)?\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", [RUN_IT, DIVERGENCES], ids=lambda path: path.stem)
def test_every_test_that_a_page_names_exists(page):
    found = TEST.findall(page.read_text(encoding="utf-8"))
    assert found
    for file, function in found:
        path = ROOT / file if "/" in file else next(ROOT.glob(f"tests/decoders/**/{file}"), ROOT / file)
        assert path.is_file(), file
        assert not function or f"def {function}(" in path.read_text(encoding="utf-8"), f"{file}::{function}"


def test_every_row_of_a_divergence_has_all_its_cells():
    for line in DIVERGENCES.read_text(encoding="utf-8").split("## Rivals")[0].splitlines():
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            assert len(cells) == 5, line
            assert cells[0].strip(), line
            assert cells[3].strip(), line
            assert cells[4].strip(), line


@pytest.mark.parametrize("page", [RUN_IT, DIVERGENCES], ids=lambda path: path.stem)
def test_every_function_that_a_page_names_exists(page):
    for name in NAME.findall(page.read_text(encoding="utf-8")):
        words, found = name.split("."), None
        for length in range(len(words), 0, -1):
            try:
                found = importlib.import_module(".".join(words[:length]))
            except ModuleNotFoundError:
                continue
            for word in words[length:]:
                found = getattr(found, word, None)
            break
        assert found is not None, name


def test_the_system_takes_five_commands_and_fifteen_lines():
    text = RUN_IT.read_text(encoding="utf-8")
    (commands, *_) = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    verbs = [line.split()[1] for line in commands.splitlines()]
    assert verbs == ["collect", "pretrain", "simulate", "evaluate", "reproduce"]
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert sum(bool(line.strip()) for line in code.splitlines()) == 15


@pytest.mark.parametrize("form", ["paper", "authors"])
def test_the_network_starts_where_the_page_says(form):
    net = AmpDaNet(AmpDaNetSettings(form=form))
    expected = {"gain": 1.15, "precision": 1.25, "damping": 0.3, "cnn_gate": 0.85, "temperature": 1.25}
    expected |= {"activity_gate": 0.2, "noise_gate": 0.5}
    expected |= {"total_step": 1.0, "popularity_step": 0.5} if form == "authors" else {}
    for k in net.scalars(torch.zeros((), dtype=torch.float64)):
        assert {name: getattr(k, name).item() for name in expected} == pytest.approx(expected, abs=1e-6)
    numbers = sum(parameter.numel() for parameter in net.parameters())
    assert numbers == {"paper": 37_510, "authors": 37_530}[form]
    assert f"{numbers:,}" in DIVERGENCES.read_text(encoding="utf-8")


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_training_meets_the_snrs_that_the_page_names(preset):
    data = PRESETS.load(preset).data
    assert (data.snr_db_low, data.snr_db_high) == (0.0, 20.0)


@pytest.mark.parametrize(
    ("uplink", "readout"), [("amp-da", "integers"), ("amp-da-net", "integers"), ("gamp-net", "auto"), ("gamp", "auto")]
)
def test_published_decoders_are_read_as_integers(uplink, readout):
    settings = Experiment().changed(**{"uplink.name": uplink})
    assert settings.aggregate.readout == "auto"
    assert make_link(settings, None).readout == readout


def anchors(page):
    """The anchors of a page's headings, as the site makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found = set()
    for heading in re.findall(r"^#{1,6} (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        slug = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        number = 0
        while (slug if not number else f"{slug}_{number}") in found:
            number += 1
        found.add(slug if not number else f"{slug}_{number}")
    return found


PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]


def test_every_link_between_pages_leads_somewhere():
    missing = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in LINK.findall(text):
            if target.startswith(("http:", "https:", "mailto:")):
                continue
            file, _, anchor = target.partition("#")
            path = (page.parent / file).resolve() if file else page
            found = path.exists() and (not anchor or path.suffix != ".md" or anchor in anchors(path))
            if not found:
                missing.append(f"{page.relative_to(ROOT)}: {target}")
    assert not missing, "\n".join(missing)
