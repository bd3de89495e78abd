"""`ottla completion`: a completion script for a shell, which shtab makes from the parsers of all commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, cast

from ..arguments.options import CommandParser, add_connection, command_parser
from ..terminal.text import say_lines

if TYPE_CHECKING:
    from ..main import Command

SHELLS = ("bash", "zsh", "fish")


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla completion`."""
    options = command_parser(
        f"ottla {name}",
        "Print a script that completes commands, actions and options in a shell.",
        "  source <(ottla completion bash)                                     this shell\n"
        "  ottla completion bash > ~/.local/share/bash-completion/completions/ottla\n"
        "  ottla completion zsh > ~/.zfunc/_ottla                              with ~/.zfunc in fpath\n"
        "  ottla completion fish > ~/.config/fish/completions/ottla.fish",
    )
    options.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")
    return options


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    say_lines(script(arguments.shell))
    return 0


def script(shell: str) -> str:
    """Return the completion script of `ottla` for a shell in `SHELLS`."""
    import shtab

    commands = all_commands()
    for each in _parsers(commands):
        for action in each._actions:
            if action.metavar in ("FILE", "PATH"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar == "DIR":
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return shtab.complete(commands, shell)


def all_commands() -> argparse.ArgumentParser:
    """Return an argument parser of `ottla` with every command.

    The `ottla` command itself imports only the module of the command that is run.
    """
    from ..main import COMMANDS

    package = __package__.rpartition(".")[0] if __package__ else ""
    everything = argparse.ArgumentParser(prog="ottla")
    add_connection(everything)
    commands = everything.add_subparsers()
    for name, module in COMMANDS.items():
        command = cast("Command", import_module(f".{module}", package)).parser(name)
        commands.add_parser(name, parents=[command], add_help=False, help=command.description)
    commands.add_parser("version", help="print the version")
    return everything


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield an argument parser and, recursively, the parsers of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _parsers(below)
