"""The command line: `aircomp COMMAND …`. Each command is a module with `run(args)`, imported only when used."""

import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import aircomp
from aircomp.cli import terminal
from aircomp.common.logs import log_as_asked
from aircomp.errors import AirCompError, ConfigError, is_lack_of_memory, one_line, unknown_name

COMMANDS = {
    "demo": "the main job on data that comes with the package",
    "simulate": "one federated run over an uplink",
    "central": "train a model on all data in one place, as a start for federated runs",
    "collect": "save the fragments of a perfect-aggregation run, for pretraining and evaluation",
    "pretrain": "train codebook and decoder end to end on saved fragments",
    "evaluate": "decode saved rounds with several decoders",
    "reproduce": "one table or figure of the paper, or all",
    "arena": "schemes at equal channel uses and energy, on one page",
    "report": "one HTML page about finished runs",
    "explain": "one slot decoded layer by layer, drawn",
    "export": "write the decoder of a layer as a file, or the signals of a round for radios",
    "list": "what there is: schemes, layers, data or results",
    "schemes": "what uplink schemes there are: what each sends, offers, needs to know and costs",
    "layers": "what trained layers come with the package",
    "cost": "what a scheme costs for a model: slots, channel uses, air time, energy",
    "data": "list datasets, fetch one",
}


EXAMPLES = """examples:
  aircomp demo
  aircomp simulate digits --uplink gamp --snr-db 5
  aircomp simulate digits --help
  aircomp cost --model resnet"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command; exit 0 if it did its job, 2 on a user's mistake, 130 on Ctrl-C."""
    args = list(sys.argv[1:] if argv is None else argv)
    terminal.prepare()
    try:
        _run(args)
    except AirCompError as error:
        _fail(str(error))
    except KeyboardInterrupt as stop:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends the process at once
        print(f"aircomp: stopped{f'; {stop}' if str(stop) else ''}", file=sys.stderr)
        sys.exit(130)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and terminal.reader_left():
            terminal.discard_output()  # who read the output has seen enough, as head has
            return
        terminal.discard_output()  # it may be what cannot be written
        where = "the output" if error.filename is None else repr(str(error.filename))
        _fail(
            f"cannot read or write {where}: {error.strerror or error}; check the path, its permissions and the space left"
        )
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        _fail("there is not enough memory for this; use fewer devices, workers or slots, or a smaller model")


def _run(args: list[str]) -> None:
    try:
        _command(args)
    except SystemExit as stop:
        if stop.code:
            raise
    sys.stdout.flush()  # here, where a failure has a sentence, and not when the interpreter leaves


def _command(args: list[str]) -> None:
    log_as_asked()
    if not args or args[0] in ("-h", "--help"):
        print(_usage())
        if not args:
            raise ConfigError("no command was given; choose one of those above")
        return
    command, *rest = args
    if command == "--version" or (rest == ["--version"] and command in COMMANDS):
        print(f"aircomp {aircomp.__version__}")
        return
    if command not in COMMANDS:
        raise unknown_name("command", command, COMMANDS)
    module = "lists" if command == "list" else command  # a module called list would hide the type in this one
    import_module(f"aircomp.cli.{module}").run(rest)


def _fail(sentence: str) -> NoReturn:
    """Print one line and exit as on a mistake."""
    print(f"aircomp: {one_line(sentence)}", file=sys.stderr)
    terminal.flush_or_discard()
    sys.exit(2)


def _usage() -> str:
    commands = "\n".join(f"  {name:10} {what}" for name, what in COMMANDS.items())
    return (
        f"usage: aircomp COMMAND [OPTIONS]\n\n{commands}\n\n{EXAMPLES}\n\naircomp COMMAND --help tells more; --version."
    )
