"""Odd inputs, hundreds of them: every one ends well or in one sentence, touches nothing foreign and takes little.

To repeat a case that failed here: `python tests/fuzz/fuzz_run.py --only NAME`. How to add one: see README.md here.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz_arguments import COMMANDS, flags_of
from fuzz_case import Case, Forked, Outcome, Place, complaint, run_here, verdict
from fuzz_material import make_material
from fuzz_run import describe, make_case

from aircomp import cli
from aircomp.studies.scales import SCALES

pytestmark = pytest.mark.seconds

SEED = 0
QUICK = {"arguments": 24, "presets": 40, "files": 16, "calls": 120, "objects": 60, "studies": 8}
"""Cases of each kind; `make fuzz` tries thousands."""
LONG = ("demo", "export")
"""Commands whose valid calls take seconds: they have tests of their own, and `make fuzz` tries them, too."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Iterator[Path]:
    scales = dict(SCALES)
    yield make_material(tmp_path_factory.mktemp("material"))
    SCALES.update(scales)  # the tiny one is for here alone


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.filterwarnings("default")  # as for users: a warning is no error
@pytest.mark.parametrize("kind", list(QUICK))
def test_odd_inputs_end_in_one_sentence(kind, inputs, tmp_path):
    place, failed = Place(tmp_path, inputs), []
    for number in range(QUICK[kind]):
        case = make_case(f"{kind}-{SEED}-{number}")
        if case.stdout != "utf-8" or case.args[:1] in ([command] for command in LONG):
            continue  # the former need a process of their own
        wrong = verdict(case, *run_here(case, place, seconds=20))
        if wrong:
            failed.append(f"{case.name}: {wrong}\n    {describe(case)}")
    assert not failed, f"{len(failed)} of {QUICK[kind]}:\n" + "\n".join(failed)


TERMINALS = [
    Case(f"{stdout} {' '.join(args)}", args, stdout=stdout)
    for stdout in ("ascii", "latin-1", "broken", "closed", "full")
    for args in (
        ["cost", "--parameters", "1000", "--uplink", "gamp", "gamp-net"],
        ["data", "list"],
        ["--help"],
        ["simulate", "digits", "--help"],
    )
]


@pytest.mark.process
@pytest.mark.parametrize("case", TERMINALS, ids=lambda case: case.name)
def test_any_terminal_will_do(case, inputs, tmp_path):
    process = Forked(case, Place(tmp_path, inputs))
    outcome = process.wait()
    assert complaint(case, outcome) is None
    assert outcome.code == (2 if case.stdout == "full" else 0)  # what does not fit on a disk was not shown


@pytest.mark.parametrize("level", ["foo", "ü", "12.5"])
def test_an_unknown_log_level_is_named(level, inputs, tmp_path):
    case = Case("log", ["data", "list"], env={"AIRCOMP_LOG": level})
    outcome, _ = run_here(case, Place(tmp_path, inputs))
    assert complaint(case, outcome) is None
    assert outcome.code == 2
    assert "AIRCOMP_LOG" in outcome.err


def test_every_command_is_tried():
    assert {command.words[0] for command in COMMANDS} == set(cli.COMMANDS)


def test_every_group_of_settings_is_tried():
    flags, _ = flags_of("simulate:Options")
    names = {flag.name for flag in flags}
    assert {"--rounds", "--snr-db", "--channel.snr-db", "--devices.total", "--out", "--resume"} <= names


@pytest.mark.parametrize(
    ("outcome", "what"),
    [
        (Outcome(0, "", "", 1.0), None),
        (Outcome(2, "", "aircomp.federation: careful\naircomp: there is no uplink 'x'\n", 1.0), None),
        (Outcome(2, "", "aircomp: there is no uplink 'x'\nand more\n", 1.0), "not one sentence"),
        (Outcome(2, "", "", 1.0), "not one sentence"),
        (Outcome(1, "", "Traceback (most recent call last):\nValueError\n", 1.0), "traceback"),
        (Outcome(0, "", "Exception ignored in: x\n", 1.0), "exit code 0, but"),
        (Outcome(130, "", "aircomp: stopped\n", 1.0), "exit code 130"),
        (Outcome(-9, "", "", 1.0), "exit code -9"),
        (Outcome(None, "", "", 60.0), "hang"),
        (Outcome(2, "", "aircomp: x\n", 1.0), "a message of 10 characters"),
    ],
)
def test_the_rules_are_held_to(outcome, what):
    found = complaint(Case("rule"), outcome)
    assert found is None if what is None else what in str(found)


def test_a_touched_foreign_file_is_noticed(inputs, tmp_path):
    def destroy() -> None:
        Path("../foreign/config.toml").write_text("ours now\n")
        Path("../../sentinel/new").touch()

    _, touched = run_here(Case("vandal", call=destroy), Place(tmp_path, inputs))
    assert {Path(path).name for path in touched} == {"config.toml", "new"}


@pytest.mark.process
def test_a_hang_is_noticed(inputs, tmp_path):
    def sleep() -> None:
        Path("fifo").read_text()

    def pipe(here: Path) -> None:
        import os

        os.mkfifo(here / "fifo")

    case = Case("sleeper", call=sleep, prepare=pipe)
    for outcome in (
        run_here(case, Place(tmp_path, inputs), 0.3)[0],
        Forked(case, _again(tmp_path, inputs), 0.5).wait(),
    ):
        assert outcome.code is None


@pytest.mark.process
def test_memory_is_limited(inputs, tmp_path):
    def gorge() -> None:
        bytearray(32 << 30)

    case = Case("glutton", call=gorge)
    outcome, _ = run_here(case, Place(tmp_path, inputs))
    assert "MemoryError" in str(complaint(case, outcome))
    assert "MemoryError" in str(complaint(case, Forked(case, _again(tmp_path, inputs)).wait()))


def _again(tmp_path: Path, inputs: Path) -> Place:
    (tmp_path / "again").mkdir()
    return Place(tmp_path / "again", inputs)
