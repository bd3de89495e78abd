"""`ottla completion`: a completion script for a shell, made from the parsers of all commands."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import cast

from ..completion_scripts import SHELLS, Word, words_of
from ..options import CommandParser, command_parser
from ..terminal import say_lines


def parser(name: str) -> CommandParser:
    """Arguments of `ottla completion`."""
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
    say_lines(SHELLS[arguments.shell](all_words()))
    return 0


def all_words() -> list[Word]:
    """What may follow `ottla`, and what may follow that."""
    from ..main import COMMANDS, Command

    package = __package__.rpartition(".")[0] if __package__ else ""
    found: list[Word] = []
    for name, module in COMMANDS.items():
        command = cast(Command, import_module(f".{module}", package))
        found.append(words_of(name, command.parser(name)))
    return [*found, Word("version", "print the version", (), ())]
