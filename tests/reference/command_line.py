"""The page of the command line, made from the parsers of all commands and actions.

The text of `--help` depends on the width of the terminal and on the version of Python, so the page has tables instead.
"""

from __future__ import annotations

import argparse
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.cli.main import COMMANDS
from tests.reference.markdown import fenced, plain, table

COMMON_FROM = 12
"""The number of commands and actions from which an option is described once, at the end of the page."""

Row = tuple[str, str]


@dataclass
class Action:
    """A command or an action of a command: its words, description, arguments and examples."""

    words: str
    description: str
    arguments: list[Row]
    options: list[Row]
    epilog: str
    actions: list[Action] = field(default_factory=list)

    def all(self) -> Iterator[Action]:
        """Yield this command and its actions."""
        yield self
        for action in self.actions:
            yield from action.all()


def commands() -> list[Action]:
    """Return all commands in the order of `ottla --help`."""
    return [
        action_of(importlib.import_module(f"ottla.cli.{module}").parser(name), f"ottla {name}")
        for name, module in COMMANDS.items()
    ]


def action_of(parser: argparse.ArgumentParser, words: str) -> Action:
    """Return the description of a parser and of the parsers below it."""
    made = Action(words, parser.description or "", [], [], parser.epilog or "")
    for each in parser._actions:
        if isinstance(each, argparse._SubParsersAction):
            made.actions += [action_of(below, f"{words} {name}") for name, below in each.choices.items()]
        elif each.help is argparse.SUPPRESS or isinstance(each, argparse._HelpAction):
            continue
        elif each.option_strings:
            made.options.append((_flags(each), help_text(each, parser)))
        else:
            made.arguments.append((f"`{_metavar(each)}`", help_text(each, parser)))
    return made


def help_text(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    """Return the help of an argument, with defaults filled in."""
    values = {**vars(action), "prog": parser.prog}
    for name, value in values.items():
        if hasattr(value, "__name__"):
            values[name] = value.__name__
    return plain(" ".join(((action.help or "") % values).split()))


def _flags(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" {_metavar(action)}"
    return f"`{', '.join(action.option_strings)}{value}`"


def _metavar(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar is not None:
        name = action.metavar
    elif action.choices is not None:
        name = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        name = action.dest.upper() if action.option_strings else action.dest
    several = {argparse.ONE_OR_MORE: f"{name} ...", argparse.ZERO_OR_MORE: f"[{name} ...]"}
    return several.get(str(action.nargs), f"[{name}]" if action.nargs == argparse.OPTIONAL else name)


def text() -> str:
    """Return the body of the page."""
    found = commands()
    counted = Counter(row for command in found for action in command.all() for row in action.options)
    common = [row for row, count in counted.items() if count >= COMMON_FROM]
    parts: list[str] = []
    for command in found:
        for action in command.all():
            parts += _action_text(action, common)
    parts.append("## Common options\n")
    parts.append("Commands and actions that refer to this section have these options.\n")
    parts.append(table(("option", "meaning"), common))
    return "\n".join(parts)


def _action_text(action: Action, common: list[Row]) -> Iterator[str]:
    yield f"{'#' * action.words.count(' ')}# {action.words}\n"
    if action.description:
        yield f"{plain(' '.join(action.description.split()))}\n"
    if action.actions:
        rows = ((_link(each.words), plain(" ".join(each.description.split()))) for each in action.actions)
        yield table(("action", "what it does"), rows)
    if action.arguments:
        yield table(("argument", "meaning"), action.arguments)
    if own := [row for row in action.options if row not in common]:
        yield table(("option", "meaning"), own)
    if shared := [row[0].strip("`").split(",")[0].split(" ")[0] for row in action.options if row in common]:
        names = ", ".join(f"`{name}`" for name in shared)
        yield f"[Common options](#common-options): {names}.\n"
    if action.epilog:
        yield fenced(action.epilog)


def _link(words: str) -> str:
    anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
    return f"[`{words}`](#{anchor})"
