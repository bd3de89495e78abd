"""Argument parsers of commands, and options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, cast

from ...protocol.nearest import nearest
from ..failures import UsageError
from .guesses import action_meant, option_meant
from .usage_errors import in_our_words, required

ACTION = "ACTION"
DEFAULT_BOOTSTRAP = "localhost:9092"


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose help ends with examples, and whose error is one line that suggests the nearest known
    name. Options are written in full."""

    _intermixing = False

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False} | settings)
        self._words: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with the message and a hint at `--help`.

        An unknown option is named first, since argparse may have taken its value for an argument.
        """
        if (unknown := self._unknown_option()) is not None:
            self.refuse(self._not_understood(unknown))
        if message == required(ACTION):
            self.refuse(f"an action is missing; there are {', '.join(self.actions)}")
        optional = {str(action.metavar) for action in self._actions if action.nargs in ("*", "?")}
        self.refuse(in_our_words(message, optional))

    def refuse(self, message: str) -> NoReturn:
        """Raise UsageError with the name of the command, the message, and a hint at `--help`."""
        command = self.prog.partition(" ")[2]
        mark = "" if message.endswith("?") else ";"
        where = f"{command}: " if command else ""
        raise UsageError(f"{where}{message}{mark} '{self.prog} --help' shows examples")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line whose arguments may stand between and after options.

        All words after `--` are arguments, even words that begin with a dash. A line with `--` cannot mix arguments
        with options, since argparse then loses the `--`.
        """
        has_end = args is not None and "--" in args
        if self._intermixing or has_end or self._actions_of_command() is not None:
            if not self._intermixing:
                self._words = args or ()
            return super().parse_known_args(args, namespace)
        self._intermixing, self._words = True, args or ()
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line, as argparse does; the error for an unknown option suggests the nearest known option."""
        found, extra = self.parse_known_args(args, namespace)
        if extra:
            parser = self.chosen(found)
            parser.refuse(parser._not_understood(extra[0]))
        return found

    def chosen(self, found: argparse.Namespace) -> CommandParser:
        """Return the parser of the action that a parsed command line has chosen, or this parser if it has none."""
        actions = self._actions_of_command()
        name = None if actions is None else getattr(found, actions.dest, None)
        return self if actions is None or name is None else cast(CommandParser, actions.choices[name])

    def and_its_actions(self) -> list[CommandParser]:
        """Return this parser and the parsers of the command's actions."""
        actions = self._actions_of_command()
        return [self, *(() if actions is None else cast("Iterable[CommandParser]", actions.choices.values()))]

    @property
    def actions(self) -> list[str]:
        """The names of the command's actions."""
        actions = self._actions_of_command()
        return [] if actions is None else list(actions.choices)

    def takes(self, option: str) -> bool:
        """Return whether the parser, without those of actions, has this option."""
        return option in self._option_string_actions

    def _actions_of_command(self) -> argparse._SubParsersAction[Any] | None:
        return next(
            (action for action in self._actions if isinstance(action, argparse._SubParsersAction)), None
        )

    def _unknown_option(self) -> str | None:
        """Return the first long option on the command line that neither the command nor an action has."""
        for word in self._words:
            if word == "--":
                return None
            name = word.partition("=")[0]
            if word.startswith("--") and not any(parser.takes(name) for parser in self.and_its_actions()):
                return word
        return None

    def _not_understood(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word!r} is one argument too many"
        meant = option_meant(word.partition("=")[0], self._option_string_actions)
        return f"there is no option {word!r}" + (f"; did you mean {meant}?" if meant else "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            meant = action_meant(str(value), names)
            hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(names)}"
            raise argparse.ArgumentError(None, f"there is no action {value!r}; {hint}")
        meant = nearest(str(value), names)
        hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(names)}"
        raise argparse.ArgumentError(action, f"no {value!r}; {hint}")


class Actions:
    """The actions of a command such as `ottla topic`.

    A function in a module of the command's package carries out each action. The module is imported only when its action
    is chosen.
    """

    def __init__(self, parser: CommandParser, package: str, *, required: bool = True) -> None:
        self._package = package
        self._parsers = parser.add_subparsers(
            dest="action", required=required, metavar=ACTION, title="actions", parser_class=CommandParser
        )

    def add(self, name: str, carried_out_by: str, description: str, examples: str) -> CommandParser:
        """Add an action to the command, and return the action's argument parser.

        The function `carried_out_by` (`module:function`) carries the action out.
        """
        parser = self._parsers.add_parser(
            name,
            help=description[0].lower() + description[1:].rstrip("."),
            description=description,
            epilog=f"examples\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(carried_out_by=(self._package, *carried_out_by.split(":")))
        return parser


def carry_out(arguments: argparse.Namespace) -> int:
    """Carry out the action of a command that the parsed arguments chose, and return its exit code."""
    package, module, function = arguments.carried_out_by
    code: int | None = getattr(import_module(f".{module}", package), function)(arguments)
    return code or 0


def command_parser(name: str, description: str, examples: str) -> CommandParser:
    """Return the argument parser of the command `name`, whose help ends with `examples`."""
    return CommandParser(
        prog=name,
        description=description,
        epilog=f"examples\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_bootstrap(options: argparse.ArgumentParser, *, repeats: bool = False) -> None:
    """Add `-b`, the address of the cluster.

    With `repeats`, the option belongs to an action and overrides the same option of the command before it.
    """
    options.add_argument(
        "-b",
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        default=argparse.SUPPRESS if repeats else None,
        help=f"brokers to connect to first (default: OTTLA_BOOTSTRAP, else {DEFAULT_BOOTSTRAP})",
    )


def add_connection(options: argparse.ArgumentParser, *, repeats: bool = False) -> None:
    """Add the options that say how to reach the cluster: `-b`, `-X`, `--command-config` and `--profile`.

    `connection.connection_of` reads them.
    """
    default = argparse.SUPPRESS if repeats else None
    add_bootstrap(options, repeats=repeats)
    options.add_argument(
        "-X",
        dest="x",
        action="append",
        metavar="KEY=VALUE",
        default=default,
        help="a connection option by its librdkafka name, such as security.protocol=SSL",
    )
    options.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        default=default,
        help="properties file of a Java client (default: OTTLA_COMMAND_CONFIG)",
    )
    options.add_argument(
        "--profile",
        metavar="NAME",
        default=default,
        help="a profile of 'ottla profile list' (default: OTTLA_PROFILE, else the choice of 'ottla profile use')",
    )


def add_output(options: argparse.ArgumentParser, *flags: str, repeats: bool = False) -> None:
    """Add `--output` with the choices `table`, `wide` and `json`; `flags` are further names of the option.

    With `repeats`, the option belongs to an action and overrides the same option of the command before it.
    """
    options.add_argument(
        *flags,
        "--output",
        choices=("table", "wide", "json"),
        default=argparse.SUPPRESS if repeats else "table",
        help="a table for people, with every column in a narrow terminal if wide, or JSON for machines",
    )


def add_common(options: argparse.ArgumentParser, *, repeats_output: bool = False) -> None:
    """Add the options of every action that sends requests to a cluster: the connection options and `-o`.

    With `repeats_output` the command itself has `-o`, too.
    """
    add_connection(options, repeats=True)
    add_output(options, "-o", repeats=repeats_output)


def add_yes(options: argparse.ArgumentParser) -> None:
    """Add `--yes`, which confirms a destructive change without a question."""
    options.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def add_regex(options: argparse.ArgumentParser, what: str) -> None:
    """Add `--regex`, with which names are regular expressions.

    `what` is the plural of the named things, for the help.
    """
    options.add_argument(
        "-r",
        "--regex",
        action="store_true",
        help=f"the names are regular expressions that match whole {what}",
    )


def key_values(pairs: Sequence[str], flag: str) -> dict[str, str]:
    """Return the `key=value` arguments of `flag` as a mapping. Raises UsageError for a malformed argument."""
    return dict(key_value_pairs(pairs, flag))


def key_value_pairs(pairs: Sequence[str], flag: str) -> list[tuple[str, str]]:
    """Return the `key=value` arguments of `flag` in their order; a key may occur twice. Raises UsageError for a
    malformed argument."""
    values: list[tuple[str, str]] = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{flag} takes key=value, not {pair!r}")
        values.append((key, value))
    return values
