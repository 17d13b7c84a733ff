"""Write the pages of the docs that are made from something else: results, the arena, commands, presets, fields.

    make pages                                 # or: python tools/make_pages.py

`tests/docs/test_pages.py` fails where a page is out of date.
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from study_pages import pages

from aircomp.cli import COMMANDS, main
from aircomp.common.artefact import write_text
from aircomp.common.settings import Settings
from aircomp.federation.experiment import Experiment, preset_names
from aircomp.measure.fields import FIELDS
from aircomp.train.recipe import BlindTrainingSettings, CodeSettings, JointTrainingSettings, PretrainSettings

DOCS = Path(__file__).parents[1] / "docs"
WIDTH = "100"
"""Characters of a line of help."""


def reference_pages() -> dict[Path, str]:
    """Return the text of every page of the reference that is made."""
    folder = DOCS / "reference"
    return {folder / "fields.md": fields(), folder / "cli.md": commands(), folder / "presets.md": presets()}


def fields() -> str:
    """Return the page of a result's fields."""
    lines = [f"| `{name}` | {field.heading} | {field.unit} | {field.meaning} |" for name, field in FIELDS.items()]
    return "\n".join([FIELDS_INTRODUCTION, "| field | heading | unit | meaning |", "|---|---|---|---|", *lines]) + "\n"


FIELDS_INTRODUCTION = """# Fields of a result

Rows of `result.json`, records of `metrics.jsonl`, columns of tables, axes of figures and TensorBoard's tags use the same
names. `src/aircomp/measure/fields.py` defines them. Where several seeds ran, `<field>` is their mean, `<field>_std` their
standard deviation, and `<field>_values` holds the value of each seed.
"""


def commands() -> str:
    """Return the page of the command line: the help of every command."""
    parts, said = [COMMANDS_INTRODUCTION], set()
    for name, what in COMMANDS.items():
        calls = [[name, word] for word in WORDS.get(name, ())] or [[name]]
        parts.append(f"## aircomp {name}\n\n{what[0].upper()}{what[1:]}.\n")
        for call in calls:
            groups = re.split(r"\n\n(?= \S+ (?:options|arguments)\n)", help_of(call))
            titles = [title_of(group) for group in groups]
            again = [title for title in titles if title in said]
            shown = [group for group, title in zip(groups, titles, strict=True) if title not in said]
            parts.append("```text\n" + "\n\n".join(shown) + "\n```\n")
            if name in SHARING:
                said |= set(titles) & SHARED
                if again:
                    parts.append(f"And the groups of [aircomp simulate](#aircomp-simulate): {', '.join(again)}.\n")
    return "\n".join(parts)


def title_of(group: str) -> str:
    """Return what a group of flags is called in the help of a command, say `data`; nothing for what stands before them."""
    found = re.match(r" (\S+) options\n", group)
    return found[1] if found else ""


WORDS = {name: ("digits",) for name in ("simulate", "collect", "central")}
WORDS |= {"data": ("list", "fetch")}
"""What follows a command before its flags: a preset, or each of its subcommands."""

SHARING = ("simulate", "central", "collect")
"""Commands with the settings of an experiment: the page has the groups that they share once."""
SHARED = {name for name, field in Experiment.model_fields.items() if isinstance(getattr(Experiment(), name), Settings)}
SHARED |= {"uplink.quantize"}

COMMANDS_INTRODUCTION = """# Command line

Every command has `--help` and `--version`. Results go to `--out`, in most commands by default a new directory under `runs/`.
What is random derives from `--seed`, or from as many seeds as `--seeds` says. A finished run is never overwritten without
`--overwrite`. Two commands go on in the same directory: `arena` and `reproduce` keep the jobs that are done and write their
page anew. The [glossary](../concepts/glossary.md) explains the terms, [Files](files.md) says what is written, and
[Logging and shell completion](../howto/shell.md) lists the exit codes.
"""


def help_of(call: list[str]) -> str:
    """Return what a command prints with --help; of simulate with all its flags."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), environment(COLUMNS=WIDTH, NO_COLOR="1"):
        main([*call, "--help-all" if call[0] == "simulate" else "--help"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue())
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set some variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def presets() -> str:
    """Return the page of the presets and of every setting."""
    parts = [PRESETS_INTRODUCTION, "## Presets of federated runs\n"]
    parts += [f"### {name}\n\n```toml\n{text}```\n" for name, text in preset_files("presets")]
    parts += ["## Presets of training a layer\n"]
    parts += [f"### pretrain: {name}\n\n```toml\n{text}```\n" for name, text in preset_files("train/presets")]
    parts += [f"### pretrain: {name}\n\n```toml\n{text}```\n" for name, text in preset_files("train/code_presets")]
    parts += [f"### pretrain: {name}\n\n```toml\n{text}```\n" for name, text in preset_files("train/blind_presets")]
    parts += [f"### pretrain: {name}\n\n```toml\n{text}```\n" for name, text in preset_files("train/joint_presets")]
    parts += ["## Settings of a federated run\n", settings_table(Experiment)]
    parts += ["## Settings of training a layer\n", settings_table(PretrainSettings)]
    parts += ["## Settings of training an analog code\n", settings_table(CodeSettings)]
    parts += ["## Settings of training a blind receiver\n", settings_table(BlindTrainingSettings)]
    parts += ["## Settings of training a joint code\n", settings_table(JointTrainingSettings)]
    return "\n".join(parts)


PRESETS_INTRODUCTION = """# Presets

A preset is a TOML file that names the settings of a run. What it leaves out has its default value, listed below.
Precedence: default, then preset, then command line. `aircomp simulate my.toml` takes a file of your own.

On the command line a setting is a flag with dots and dashes (`--devices.total 100`); in Python it is a keyword
(`**{"devices.total": 100}`).
"""


def preset_files(folder: str) -> list[tuple[str, str]]:
    """Return name and text of the presets in a folder of the package."""
    here = Path(str(resources.files("aircomp"))) / folder
    found = sorted(here.glob("*.toml"))
    assert folder != "presets" or {path.stem for path in found} == set(preset_names())
    return [(path.stem, path.read_text(encoding="utf-8")) for path in found]


def settings_table(settings: type[Settings]) -> str:
    """Return every setting with its default and meaning."""
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    return "\n".join([*lines, *(line for line in _settings(settings(), ""))]) + "\n"


def _settings(group: Settings, prefix: str) -> Iterator[str]:
    for name, field in type(group).model_fields.items():
        value: Any = getattr(group, name)  # Any: settings are of many types
        if prefix + name == "own":
            continue  # set by the run, not by people
        if isinstance(value, Settings):
            yield from _settings(value, f"{prefix}{name}.")
        else:
            meaning = " ".join((field.description or "").split()).replace("|", r"\|")
            yield f"| `{prefix}{name}` | `{value!r}` | {meaning} |"


def write_all() -> list[Path]:
    """Write every made page; return those that changed."""
    changed = []
    for path, text in (pages(DOCS) | reference_pages()).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
            changed.append(path)
    return changed


if __name__ == "__main__":
    print(*write_all(), sep="\n")
