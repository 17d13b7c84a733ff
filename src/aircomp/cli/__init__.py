"""The command line: `aircomp COMMAND …`. Each command is a module with `run(args)`, imported only when used."""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import aircomp
from aircomp.errors import AirCompError, unknown_name

COMMANDS = {
    "demo": "the main job on data that comes with the package",
    "simulate": "one federated run over an uplink",
    "central": "train a model on all data in one place, as a start for federated runs",
    "collect": "save the fragments of a perfect-aggregation run, for pretraining and evaluation",
    "pretrain": "train codebook and decoder end to end on saved fragments",
    "evaluate": "decode saved rounds with several decoders",
    "reproduce": "one table or figure of the paper, or all",
    "report": "one HTML page about finished runs",
    "explain": "one slot decoded layer by layer, drawn",
    "export": "write the decoder of a layer as an ONNX or torch.export file",
    "cost": "what a scheme costs for a model: slots, channel uses, air time, energy",
    "bench": "speed, as ratios measured side by side",
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
    logging.basicConfig(level=os.environ.get("AIRCOMP_LOG", "WARNING").upper(), format="%(name)s: %(message)s")
    if not args or args[0] in ("-h", "--help"):
        print(_usage())
        sys.exit(0 if args else 2)
    if args[0] == "--version":
        print(f"aircomp {aircomp.__version__}")
        return
    command, *rest = args
    try:
        if command not in COMMANDS:
            raise unknown_name("command", command, COMMANDS)
        if rest == ["--version"]:
            print(f"aircomp {aircomp.__version__}")
            return
        import_module(f"aircomp.cli.{command}").run(rest)
    except AirCompError as error:
        print(f"aircomp: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends the process at once
        print(f"aircomp: stopped{f'; {stop}' if str(stop) else ''}", file=sys.stderr)
        sys.exit(130)


def _usage() -> str:
    commands = "\n".join(f"  {name:10} {what}" for name, what in COMMANDS.items())
    return (
        f"usage: aircomp COMMAND [OPTIONS]\n\n{commands}\n\n{EXAMPLES}\n\naircomp COMMAND --help tells more; --version."
    )
