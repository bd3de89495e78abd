"""Argument parsers of commands, and options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, cast

from ...protocol.nearest import nearest
from ..failures import UsageError

DEFAULT_BOOTSTRAP = "localhost:9092"


class CommandParser(argparse.ArgumentParser):
    """An argument parser whose help ends with examples, and whose error is one line that suggests the nearest known
    name."""

    _intermixing = False

    def error(self, message: str) -> NoReturn:
        """Raise UsageError with the message and a hint at `--help`."""
        words = self.prog.removeprefix("ottla ")
        raise UsageError(f"{words}: {message}; '{self.prog} --help' shows examples")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line whose arguments may stand between and after options.

        All words after `--` are arguments, even words that begin with a dash. A line with `--` cannot mix arguments
        with options, since argparse then loses the `--`.
        """
        has_end = args is not None and "--" in args
        has_actions = any(isinstance(action, argparse._SubParsersAction) for action in self._actions)
        if self._intermixing or has_end or has_actions:
            return super().parse_known_args(args, namespace)
        self._intermixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse a command line, as argparse does; the error for an unknown option suggests the nearest known option."""
        found, extra = self.parse_known_args(args, namespace)
        if extra:
            parser = self._chosen(found)
            known = [flag for flag in parser._option_string_actions if flag.startswith("--")]
            meant = nearest(extra[0].partition("=")[0], known)
            hint = f"; did you mean {meant}?" if meant else ""
            parser.error(f"{extra[0]!r} is not understood{hint}")
        return found

    def _chosen(self, found: argparse.Namespace) -> CommandParser:
        for action in self._actions:
            chosen = getattr(found, action.dest, None)
            if isinstance(action, argparse._SubParsersAction) and chosen in action.choices:
                return cast(CommandParser, action.choices[chosen])
        return self

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        meant = nearest(str(value), names)
        hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(names)}"
        raise argparse.ArgumentError(
            None if isinstance(action, argparse._SubParsersAction) else action, f"no {value!r}; {hint}"
        )


class Actions:
    """The actions of a command such as `ottla topic`.

    A function in a module of the command's package carries out each action. The module is imported only when its action
    is chosen.
    """

    def __init__(self, parser: CommandParser, package: str, *, required: bool = True) -> None:
        self._package = package
        self._parsers = parser.add_subparsers(
            dest="action", required=required, metavar="ACTION", title="actions", parser_class=CommandParser
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


def add_output(options: argparse.ArgumentParser, *flags: str) -> None:
    """Add `--output` with the choices `table` and `json`; `flags` are further names of the option."""
    options.add_argument(
        *flags,
        "--output",
        choices=("table", "json"),
        default="table",
        help="a table for people or JSON for machines",
    )


def add_common(options: argparse.ArgumentParser) -> None:
    """Add the options of every action that sends requests to a cluster: the connection options and `-o`."""
    add_connection(options, repeats=True)
    add_output(options, "-o")


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
