"""Options before the command, as in `ottla -b HOST:PORT topic list`: the connection options and `-o`.

They mean the same as after the command, where an equal option overrides them.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..failures import UsageError
from .guesses import option_meant
from .options import CommandParser, add_connection, add_output
from .usage_errors import first_long


@dataclass(frozen=True, slots=True)
class LeadingOptions:
    """The values of options before the command, by the first long name of each option."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def give_to(self, parser: CommandParser) -> None:
        """Make the values the defaults of a command's options. Raises UsageError for a value that the command does not
        take."""
        for each in parser.and_its_actions():
            for action in each._actions:
                for option in self.values.keys() & set(action.option_strings):
                    self._give(each, action, option)

    def _give(self, parser: CommandParser, action: argparse.Action, option: str) -> None:
        value = self.values[option]
        if action.choices is not None and value not in action.choices:
            parser.refuse(f"{option} takes {', '.join(action.choices)}, not {value!r}")
        if (
            action.default is not argparse.SUPPRESS
        ):  # Such an option repeats the command's own, which has the value.
            action.default = value

    def check_taken(self, parser: CommandParser, found: argparse.Namespace) -> None:
        """Check that the command, or the action that the parsed line has chosen, has every option. Raises
        UsageError."""
        chosen = parser.chosen(found)
        for option in self.values:
            if not (chosen.takes(option) or parser.takes(option)):
                chosen.refuse(f"there is no option {option} for this command")


def split(words: Sequence[str], commands: Collection[str]) -> tuple[LeadingOptions, list[str]]:
    """Separate the options before the command from the words that begin with the command.

    Raises UsageError for an option that does not stand before a command.
    """
    parser = _parser()
    end = 0
    while (
        end < len(words)
        and words[end].startswith("-")
        and words[end] not in ("-h", "--help", "-V", "--version")
    ):
        end += _length(parser, words, end, commands)
    found = vars(parser.parse_args(words[:end]))
    given = {
        first_long(action.option_strings): found[action.dest]
        for action in parser._actions
        if action.dest in found
    }
    return LeadingOptions(given), list(words[end:])


def _parser() -> CommandParser:
    parser = CommandParser(prog="ottla", add_help=False, argument_default=argparse.SUPPRESS)
    add_connection(parser, repeats=True)
    add_output(parser, "-o", repeats=True)
    return parser


def _length(parser: CommandParser, words: Sequence[str], place: int, commands: Collection[str]) -> int:
    """Return the number of words of the option at `place`, the value included. Raises UsageError."""
    word = words[place]
    name, equals, _ = word.partition("=")
    if word.startswith("--") and parser.takes(name):
        return 1 if equals else 2
    if not word.startswith("--") and parser.takes(word[:2]):
        return 1 if len(word) > 2 else 2
    meant = option_meant(name, parser._option_string_actions)
    command = next((later for later in words[place + 1 :] if later in commands), None)
    if meant is None and command is not None:
        raise UsageError(f"{name} stands after its command: ottla {command} {name}")
    hint = f"did you mean {meant}?" if meant else "-b, -X, --command-config, --profile and -o may stand there"
    raise UsageError(f"there is no option {name!r} before a command; {hint}")
