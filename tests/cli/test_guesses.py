"""Suggestions for wrong command lines, options before the command, and errors of argparse in our words."""

from __future__ import annotations

import json
from importlib import import_module

import pytest

from ottla.cli.arguments.guesses import ACTIONS, LINES, OPTIONS, action_meant, option_meant
from ottla.cli.arguments.options import CommandParser
from ottla.cli.main import COMMANDS, main


def parser_of(command: str) -> CommandParser:
    found = import_module(f"ottla.cli.{COMMANDS[command]}").parser(command)
    assert isinstance(found, CommandParser)
    return found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("lag", "there is no command 'lag'; did you mean 'ottla group list --lag'?"),
        ("create topic orders", "did you mean 'ottla topic create'?"),
        ("create topics orders", "did you mean 'ottla topic create'?"),
        ("creat topic orders", "did you mean 'ottla topic create'?"),
        ("ls -b h:1 groups", "did you mean 'ottla group list'?"),
        ("stop", "there is no command 'stop'; Control-C in the terminal of 'ottla up' stops its cluster"),
        ("versoin", "did you mean 'ottla version'?"),
        ("zzz", "completion, version"),
        ("topics", "did you mean 'ottla topic'?"),
        (
            "describe orders",
            "did you mean 'ottla topic describe' or 'ottla group describe' or 'ottla txn describe'?",
        ),
        ("kafka-consumer-groups.sh --list", "did you mean 'ottla group'?"),
        ("status", "did you mean 'ottla cluster health'?"),
        ("group reset-offsets g", "group: there is no action 'reset-offsets'; did you mean 'seek'?"),
        ("topic rm t", "topic: there is no action 'rm'; did you mean 'delete'?"),
        ("topic ls", "did you mean 'list'?"),
        ("config edit topic t", "did you mean 'set'?"),
        ("cluster zzz", "cluster: there is no action 'zzz'; there are health, reassign"),
        ("topic", "topic: an action is missing; there are create, list"),
        ("up --brokrs 3", "up: there is no option '--brokrs'; did you mean --brokers?"),
        ("up --port 1", "up: there is no option '--port'; did you mean --base-port?"),
        ("up --brokers x", "up: --brokers takes a whole number, not 'x'; 'ottla up --help' shows examples"),
        ("broker --conf x", "broker: there is no option '--conf'; did you mean --config?"),
        ("produce --form %s", "produce: there is no option '--form'; did you mean --format?"),
        ("topic list --reg x", "topic list: there is no option '--reg'; did you mean --regex?"),
        ("topic alter t --config a=1", "there is no option '--config'; did you mean --set?"),
        ("topic create t --set a=1", "there is no option '--set'; did you mean --config?"),
        ("topic alter t --add-config a=1", "there is no option '--add-config'; did you mean --set?"),
        ("topic alter t --delete-config a", "there is no option '--delete-config'; did you mean --unset?"),
        ("up --console --allow-changes", "no option '--allow-changes'; did you mean --console=changes?"),
        ("topic list -Z", "topic list: there is no option '-Z'; 'ottla topic list --help'"),
        ("topic list --regex=x", "topic list: --regex takes no value, but got 'x'"),
        ("topic create -p", "topic create: --partitions needs a value"),
        ("topic create", "topic create: TOPIC is missing"),
        ("topic add-partitions t", "topic add-partitions: one of --num, --to is missing"),
        ("topic add-partitions t --num 1 --to 2", "--to and --num exclude each other"),
        ("acl create --principal User:a --operation READ", "one of --topic, --group"),
        (
            "acl check --principal ann --operation READ --topic a",
            "--principal takes TYPE:NAME, such as User:ann, not 'ann': no colon is present",
        ),
        ("acl list --principal :ann", "not ':ann': no type is present"),
        ("cluster decommission one", "ID takes a whole number, not 'one'"),
        ("cluster decommission 1 2", "'2' is one argument too many"),
        (
            "--bootstrp h:1 topic list",
            "there is no option '--bootstrp' before a command; did you mean --bootstrap?",
        ),
        ("--brokers 3 up", "--brokers stands after its command: ottla up --brokers"),
        (
            "--zzz",
            "there is no option '--zzz' before a command; -b, -X, --command-config, --profile and -o may stand",
        ),
        ("-o jsn topic list", "no 'jsn'; did you mean 'json'?"),
        ("-b h:1 up", "up: there is no option --bootstrap for this command"),
        ("-b h:1 profile list", "profile list: there is no option --bootstrap for this command"),
        ("-b", "--bootstrap needs a value"),
    ],
)
def test_one_line_names_what_may_be_meant(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_suggestions_exist() -> None:
    """Each suggestion for a word of another tool is a command line that `ottla` has, and the word itself is none."""
    for word, line in LINES.items():
        command, *words = line.split()
        assert word not in COMMANDS
        assert not words or words[0] in parser_of(command).actions, line
    known = {action for command in COMMANDS for action in parser_of(command).actions}
    for actions in ACTIONS.values():
        assert set(actions) <= known, actions
    parsers = [parser for command in COMMANDS for parser in parser_of(command).and_its_actions()]
    for options in OPTIONS.values():
        for option in options:
            assert any(parser.takes(option.partition("=")[0]) for parser in parsers), option


def test_likely_meanings_go_first() -> None:
    assert action_meant("rm", ["list", "unset", "set"]) == "unset"
    assert action_meant("lst", ["list", "set"]) == "list"
    assert action_meant("zzz", ["list"]) is None
    assert option_meant("--com", ["--command-config", "--commit", "-c"]) == "--commit"
    assert option_meant("--command", ["--command-config", "--commit"]) == "--command-config"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_parser_takes_shortened_options(command: str) -> None:
    for parser in parser_of(command).and_its_actions():
        assert not parser.allow_abbrev


@pytest.mark.parametrize(
    "words",
    [
        "-b 127.0.0.1:1 topic list",
        "-b127.0.0.1:1 topic list",
        "--bootstrap=127.0.0.1:1 consume t",
        "--bootstrap-server 127.0.0.1:1 -o json cluster",
        "-b h:1 topic list -b 127.0.0.1:1",
        "-b h:1 topic -b 127.0.0.1:1 list",
    ],
)
def test_the_address_may_stand_before_the_command(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 1
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err


def test_other_options_before_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-X", "security.protocl=SSL", "topic", "list"]) == 2
    assert "did you mean 'security.protocol'?" in capsys.readouterr().err
    assert main(["--profile", "nowhere", "group", "list"]) == 1
    assert "there is no profile 'nowhere'" in capsys.readouterr().err
    assert main(["--command-config", "/nowhere", "group", "list"]) == 1
    assert "/nowhere" in capsys.readouterr().err
    assert main(["-o", "json", "profile", "list"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), list)
    assert main(["-b", "h:1", "--help"]) == 0
    assert main(["--version"]) == 0
