"""`aircomp list schemes|layers|data|results`: what there is."""

from collections.abc import Sequence
from importlib import import_module

from aircomp.cli.common import subcommand
from aircomp.errors import unknown_name

KINDS = {"schemes": ("schemes",), "layers": ("layers",), "data": ("data", "list"), "results": ("reproduce", "--list")}
"""The command that lists each, and its words."""


def run(args: Sequence[str]) -> None:
    """Run the command that lists what is asked for."""
    kind, *rest = subcommand(args, f"aircomp list {' | '.join(KINDS)}")
    if kind not in KINDS:
        raise unknown_name("list", kind, KINDS)
    command, *words = KINDS[kind]
    import_module(f"aircomp.cli.{command}").run([*words, *rest])
