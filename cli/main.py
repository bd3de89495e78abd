"""Entry point of `ottla`: imports the module of one command, and turns failures into one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Protocol, cast

from .arguments.guesses import EXPLANATIONS, lines_meant
from .arguments.leading_options import LeadingOptions, split
from .arguments.options import CommandParser
from .failures import CommandFailed, NameMissing, UsageError
from .terminal.text import note, say, say_lines

OVERVIEW = """\
usage: ottla [connection options] COMMAND [options]

a local cluster
  up         start quorum nodes and brokers on this machine and stay in the foreground
  quorum     run one quorum node:  ottla quorum -c quorum.yaml
  broker     run one broker:       ottla broker -c broker.yaml

daily work (-b HOST:PORT before or after the command, or OTTLA_BOOTSTRAP; localhost:9092 otherwise)
  topic      create, list, describe, alter, trim and delete topics
  produce    send lines to a topic
  consume    print the records of a topic
  group      list, describe, seek and delete consumer groups
  dlq        list and show dead letters, and send them back to their topics
  config     settings of topics, brokers, groups and client metrics
  quota      limits of clients
  acl        access rules, and which of them decides
  user       create, list and delete users who log in by SCRAM
  token      create, list, renew and expire delegation tokens
  security   certificates of a cluster, and access to it after a lock-out
  txn        list, describe and abort transactions; find those that hang
  mirror     copy topics of another cluster offset by offset, watch and promote them
  backup     copy a cluster into an object store; 'cluster restore' brings it back
  audit      compare record counts of producers and consumers; find missing records
  objects    delete large values in an object store that no record refers to
  cluster    brokers and quorum; health, reassign, rebalance, decommission, elect, restore
  console    pages for a browser: the state of the cluster, and changes of it

tables and pipelines
  lake       write topics as Iceberg tables, exactly once
  spark      run a pipeline in Spark, exactly once, as a YAML file describes it

tools
  profile    save connection settings of clusters, with TLS and passwords
  log        dump and verify the files of a data folder
  bench      measure produce, consume and latency of any Kafka cluster
  completion completion for bash, zsh and fish

  version    print the versions of Ottla and Python, and whether the codec is in C

examples
  ottla up                                  three quorum nodes and three brokers in ./ottla-data
  ottla topic create orders -p 6 -r 3
  echo 'a:1' | ottla produce orders -K :
  ottla consume orders -o beginning -e

'ottla COMMAND --help' says more.
"""

COMMANDS = {
    "up": "local_cluster.up",
    "quorum": "nodes.node",
    "broker": "nodes.node",
    "topic": "commands.topic",
    "produce": "commands.produce",
    "consume": "commands.consume",
    "group": "commands.group",
    "dlq": "commands.dlq",
    "config": "commands.config",
    "quota": "commands.quota",
    "acl": "commands.acl",
    "user": "commands.user",
    "token": "commands.token",
    "security": "commands.security",
    "txn": "commands.txn",
    "mirror": "commands.mirror",
    "backup": "commands.backup",
    "audit": "commands.audit",
    "objects": "commands.objects",
    "cluster": "commands.cluster",
    "console": "commands.console",
    "lake": "commands.lake",
    "spark": "commands.spark",
    "profile": "commands.profile",
    "log": "commands.log",
    "bench": "commands.bench",
    "completion": "commands.completion",
}
"""Command names, each with the module of this package that implements it."""

VERSION = "version"
"""The command that prints versions; it has no module."""


class Command(Protocol):
    """The interface of a command's module: its argument parser and its execution."""

    def parser(self, name: str) -> CommandParser:
        """Return the parser of the command called `name`."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command and return its exit code. Raises CommandFailed or UsageError with a one-line message."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one `ottla` command and return its exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in ("stdout", "stderr"):  # A daemon may be started with closed streams.
        if getattr(sys, stream) is None:
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
    name = ""
    try:
        leading, rest = split(words, COMMANDS)
        name = rest[0] if rest else ""
        code = _run(name, rest[1:], leading)
        sys.stdout.flush()
        return code
    except UsageError as error:
        note(f"ottla: {error}")
        return 2
    except CommandFailed as error:
        note(f"ottla {name}: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _forget_output()
        return 141
    except UnicodeEncodeError as error:
        note(f"ottla {name}: {error.object[error.start]!r} cannot be written in {error.encoding}")
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        note(f"ottla {name}: {where}{error.strerror or str(error) or type(error).__name__}")
        if not error.filename:  # Without a file name, the output itself could not be written.
            _forget_output()
        return 1


def _run(name: str, words: Sequence[str], leading: LeadingOptions) -> int:
    if name in ("-h", "--help", "help"):
        say_lines(OVERVIEW)
        return 0
    if name in (VERSION, "--version", "-V"):
        from .build import this_build

        say(this_build())
        return 0
    if name not in COMMANDS:
        raise UsageError(_unknown(name, words))
    command = _command(name)
    parser = command.parser(name)
    leading.give_to(parser)
    arguments = parser.parse_args(words)
    leading.check_taken(parser, arguments)
    try:
        return command.run(arguments)
    except NameMissing as error:
        raise error.told_to(getattr(arguments, "login_user", None)) from None


def _command(name: str) -> Command:
    return cast(Command, import_module(f".{COMMANDS[name]}", __package__))


def _forget_output() -> None:
    """Redirect standard output to /dev/null, so that the interpreter's own flush at exit fails no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unknown(name: str, words: Sequence[str]) -> str:
    known = (*COMMANDS, VERSION)
    if not name:
        return f"a command is missing; there are {', '.join(known)}. 'ottla --help' shows examples"
    if (explanation := EXPLANATIONS.get(name.removesuffix(".sh"))) is not None:
        return f"there is no command {name!r}; {explanation}"
    meant = [f"'ottla {line}'" for line in lines_meant(name, words, known, _actions_of)]
    guess = f"did you mean {' or '.join(meant)}?" if meant else f"there are {', '.join(known)}"
    return f"there is no command {name!r}; {guess}"


def _actions_of(name: str) -> Collection[str]:
    return _command(name).parser(name).actions if name in COMMANDS else ()


if __name__ == "__main__":
    sys.exit(main())
