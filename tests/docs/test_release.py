"""What a release says of itself: every file parses, and all of them tell the same."""

import json
import re
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extras docs and flower")
ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGE = (ROOT / "src" / "aircomp" / "__init__.py").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_package_citation_archive_and_changelog_tell_the_same():
    (version,) = re.findall(r'^__version__ = "(.+)"$', PACKAGE, re.MULTILINE)
    citation, archive = yaml.safe_load(read("CITATION.cff")), json.loads(read(".zenodo.json"))
    assert citation["version"] == version
    assert re.findall(r"^## (\d\S*)", read("CHANGELOG.md"), re.MULTILINE)[0] == version
    assert citation["license"] == archive["license"] == PROJECT["license"]
    assert citation["title"] == archive["title"]
    assert citation["keywords"] == archive["keywords"] == PROJECT["keywords"]
    assert citation["authors"] == archive["creators"] == PROJECT["authors"]
    paper = citation["preferred-citation"]["url"].removeprefix("https://arxiv.org/abs/")
    assert archive["related_identifiers"][0]["identifier"] == f"arXiv:{paper}"
    assert PROJECT["urls"]["The paper's system"] == citation["preferred-citation"]["url"]


@pytest.mark.parametrize("path", [*WORKFLOWS, *TEMPLATES, ROOT / ".pre-commit-config.yaml"], ids=lambda path: path.name)
def test_a_file_of_the_forge_parses(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for job in content["jobs"].values() if path in WORKFLOWS else ():
        assert "uses" in job or all("run" in step or "uses" in step for step in job["steps"])


def test_the_tests_run_on_every_python_that_is_claimed():
    tried = yaml.safe_load(read(".github/workflows/tests.yml"))["jobs"]["tests"]["strategy"]["matrix"]["python"]
    claimed = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert tried == claimed
    assert PROJECT["requires-python"] == f">={claimed[0]}"


def test_nothing_is_published_before_it_is_tested():
    jobs = yaml.safe_load(read(".github/workflows/release.yml"))["jobs"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"


def test_every_direct_dependency_is_pinned():
    pinned = {plain(line) for line in read("constraints.txt").splitlines() if "==" in line}
    wanted = [
        *PROJECT["dependencies"],
        *(each for extra in PROJECT["optional-dependencies"].values() for each in extra),
    ]
    assert {plain(each) for each in wanted} - pinned == {"sionna-no-rt"}  # the one that our tests do without


def plain(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


def test_the_journal_paper_cites_what_it_lists_and_nothing_else():
    text, listed = read("paper/paper.md"), re.findall(r"^@\w+\{(\w+),", read("paper/paper.bib"), re.MULTILINE)
    _, front, body = text.split("---\n", 2)
    assert {each["name"] for each in yaml.safe_load(front)["authors"]} == {each["name"] for each in PROJECT["authors"]}
    assert set(re.findall(r"@(\w+)", body)) == set(listed)
    assert len(listed) == len(set(listed))
    assert "# Statement of need" in body
    assert 250 < len(body.split()) < 1750


def test_the_journal_paper_counts_the_schemes():
    from aircomp.schemes.registry import SCHEMES

    assert re.findall(r"(\d+) schemes", read("paper/paper.md")) == [str(len(SCHEMES.entries))] * 2


def test_the_source_archive_is_packed_of_what_is_there():
    packed = tomllib.loads(read("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in packed if not (ROOT / name).exists()] == []
    assert {"src", "tests", "docs", "paper"} <= set(packed)
