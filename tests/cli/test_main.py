"""The command line: help everywhere, named typing mistakes, exit codes, quick start-up."""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from ottla import __version__
from ottla.cli.commands.consume.places import parse_offset, parse_until
from ottla.cli.commands.produce import MAX_LINE_BYTES, parser, read_lines
from ottla.cli.commands.produce import run as run_produce
from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.main import COMMANDS, main
from ottla.cli.nodes.logs import JsonFormatter, KeyValueFormatter
from ottla.cli.terminal.record_format import MalformedRecord

ROOT = Path(__file__).resolve().parents[2]


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *words], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_the_version() -> None:
    code, out, err = run("version")
    assert (code, err) == (0, "")
    assert out.startswith(f"ottla {__version__}, Python {sys.version.split()[0]}, codec: ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"ottla {name} " in capsys.readouterr().out.partition("examples")[2]


def actions(name: str) -> list[str]:
    command = import_module(f"ottla.cli.{COMMANDS[name]}")
    for action in command.parser(name)._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices)
    return []


@pytest.mark.parametrize(
    ("name", "action"), [(name, action) for name in COMMANDS for action in actions(name)]
)
def test_every_action_explains_itself_with_examples(
    name: str, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, action, "--help"])
    assert ended.value.code == 0
    assert f"ottla {name} {action}" in capsys.readouterr().out.partition("examples")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_in_the_help_can_be_parsed(name: str) -> None:
    parser = import_module(f"ottla.cli.{COMMANDS[name]}").parser(name)
    parsers = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers += action.choices.values()
    for each_parser in parsers:
        for line in (each_parser.epilog or "").splitlines():
            if f"ottla {name} " not in line:
                continue
            for words in ottla_commands(line.strip().split("   ")[0]):
                parser.parse_args(words[1:])


def ottla_commands(line: str) -> list[list[str]]:
    """Return the arguments of each `ottla` in a shell line, where `$$` is the shell's process."""
    found = []
    for part in re.split(r"[|<>()]", line.replace("$$", str(os.getpid()))):
        words = shlex.split(part.strip().removeprefix("`"))
        if words[:1] == ["ottla"] and len(words) > 1:
            found.append(words[1:])
    return found


def page_commands() -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / "docs" / "CLI.md").read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if "ottla " in line]


@pytest.mark.parametrize("line", page_commands())
def test_the_commands_of_the_page_can_be_parsed(line: str) -> None:
    for words in ottla_commands(line):
        import_module(f"ottla.cli.{COMMANDS[words[0]]}").parser(words[0]).parse_args(words[1:])


def test_names_may_begin_with_a_dash_after_two() -> None:
    groups, topics = (
        import_module(f"ottla.cli.{COMMANDS[name]}").parser(name) for name in ("group", "topic")
    )
    assert groups.parse_args(["seek", "--to", "end", "--", "-g"]).group == "-g"
    found = topics.parse_args(["create", "-p", "3", "--", "-p7", "--config"])
    assert (found.names, found.partitions) == (["-p7", "--config"], 3)
    assert topics.parse_args(["delete", "a", "-y", "b"]).names == ["a", "b"]


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "a command is missing"),
        (("brokr",), "there is no command 'brokr'; did you mean 'ottla broker'?"),
        (("zzz",), "there is no command 'zzz'; there are up"),
        (("up", "--quorum", "2"), "--quorum takes 1, 3 or 5, not 2"),
        (("up", "--brokers", "0"), "--brokers takes 1 to 100, not 0"),
        (("up", "--base-port", "70000"), "--base-port takes 1 to"),
        (("up", "--set", "log.segment.byte=1"), "did you mean log.segment.bytes?"),
        (("up", "--set", "log.segment.bytes=big"), "Invalid value 'big' for configuration log.segment.bytes"),
        (("up", "--set", "node.id=7"), "--set node.id: ottla up decides this itself"),
        (("consume", "t", "-o", "last"), "-o takes beginning, end, N, -N or @TIME, not 'last'"),
        (("consume", "t", "-o", "json"), "for the format give --output json"),
        (("consume", "t", "-o", "9" * 5_000), "-o takes beginning, end, N, -N or @TIME, not '99999"),
        (("consume", "t", "--until", "end"), "--until takes N or @TIME, not 'end'; the end of the log is -e"),
        (("consume", "t", "-o", "@1h", "--until", "@2h"), "--until is not behind -o"),
        (("consume", "t", "--grep", "("), "--grep: '(' is no regular expression as RE2 has them: missing )"),
        (("consume", "t", "--key", "(?=x)"), "--key: '(?=x)' is no regular expression"),
        (("consume", "t", "--header", "=x"), "--header: a filter of headers is NAME or NAME=PATTERN"),
        (("consume", "t", "--where", "a.b"), "--where: a JSON path begins with $"),
        (("consume", "t", "-g", "g", "-p", "1"), "give -g or -p"),
        (("consume", "t", "-f", "%q"), "-f does not know %q"),
        (("produce", "t", "-H", "x"), "-H takes key=value, not 'x'"),
        (("topic", "create", "t", "--config", "x"), "--config takes key=value, not 'x'"),
        (("topic", "list", "-b", "host:port"), "'host:port' is no bootstrap server"),
        (("topic",), "topic: an action is missing; there are create, list"),
        (("produce",), "produce: TOPIC is missing"),
        (
            ("topic", "creat"),
            "topic: there is no action 'creat'; did you mean 'create'? 'ottla topic --help' shows examples",
        ),
        (("topic", "list", "--intenal"), "there is no option '--intenal'; did you mean --internal?"),
        (("topic", "list", "-o", "jsn"), "no 'jsn'; did you mean 'json'?"),
        (("topic", "alter", "t"), "say what to change with --set KEY=VALUE or --unset KEY"),
        (("topic", "alter", "t", "--set", "a=1", "--unset", "a"), "a is given with --set and with --unset"),
        (("topic", "add-partitions", "t", "-n", "0"), "--num takes 1 or more, not 0"),
        (("topic", "trim", "t"), "say up to where, either with --offset or --timestamp, or as TOPIC"),
        (("topic", "trim", "t", "--offset", "x"), "--offset takes a number or end, not 'x'"),
        (("topic", "trim", "t", "--timestamp", "yesterday"), "'yesterday' is no time: write milliseconds"),
        (("group", "seek", "g"), "say where to, either with --to, --to-group or --to-file, or as --topic"),
        (("topic", "trim", "t:0=5", "--offset", "7"), "say up to where, either with"),
        (("group", "seek", "g", "--to", "end", "--topic", "t:0=5"), "say where to, either with"),
        (("group", "seek", "g", "--to", "+-1"), "--to takes start, end, an offset, +N, -N or @TIME"),
        (("config", "get", "topc", "t"), "no 'topc'; did you mean 'topic'?"),
        (("config", "get", "broker", "one"), "a broker goes by its id, or by 'all'; not 'one'"),
        (("config", "set", "topic", "t", "x"), "config set takes key=value, not 'x'"),
        (("quota", "set", "producer_byte_rate=1"), "whose limit? Name a --user, --client-id or --ip"),
        (("quota", "set", "--user", "u", "request_percentage=half"), "quota set takes numbers"),
        (("txn", "list", "--state", "ongoing"), "no 'ongoing'; did you mean 'Ongoing'?"),
        (
            ("txn", "list", "--open-longer-than", "long"),
            "--open-longer-than takes a time such as 90s, 15m or 2h",
        ),
        (
            ("txn", "find-hanging", "--max-timeout", "1w"),
            "--max-timeout takes a time such as 90s, 15m or 2h",
        ),
        (("txn", "list", "-r", "c("), "'c(' is no regular expression"),
        (("txn", "abort"), "txn abort: ID is missing"),
        (
            ("txn", "abort-hanging", "orders", "--producer-id", "7", "--secret-file", "no-such-file"),
            "abort-hanging takes TOPIC:PARTITION such as orders:0, not 'orders'",
        ),
        (("txn", "abort-hanging", "orders:0"), "--producer-id and --secret-file are missing"),
        (("txn", "delete"), "txn delete: ID is missing"),
        (("txn", "delete", "-r", "c("), "'c(' is no regular expression"),
        (("cluster", "reassign"), "give a FILE, or --topic and --replicas; or --list or --cancel"),
        (("cluster", "health", "--timeout", "3"), "--timeout goes with --exit-when-healthy"),
        (("cluster", "health", "--interval", "0"), "--interval takes seconds above 0, not 0"),
        (
            ("cluster", "health", "-e", "-b", "host:port"),
            "'host:port' is no bootstrap server; write host:port",
        ),
        (
            ("cluster", "health", "-w", "-b", "host:port"),
            "'host:port' is no bootstrap server; write host:port",
        ),
        (("consume", "t", "-f", "%s", "-K", ":"), "-f says all: leave -K and -D out"),
        (("consume", "t", "-p", "x"), "'x' is no number and no range such as 2-4"),
        (("produce", "t", "-f", "%k%s"), "-f needs some text between two fields"),
        (("produce", "t", "--whole-files"), "--whole-files needs files"),
        (("produce", "t", "--input", "json", "-K", ":", "-Z"), "--input json says all: leave -K and -Z out"),
        (("produce", "t", "--input", "json", "--timestamp", "5"), "leave --timestamp out"),
        (("produce", "t", "--input", "json", "--keep-partitions", "-p", "1"), "give --keep-partitions or -p"),
        (("produce", "t", "--keep-partitions"), "--keep-partitions goes with --input json"),
        (("produce", "t", "--input", "csv"), "there are lines, json"),
        (("bench", "-s", "1"), "-s takes 8 to 1000000 bytes, not 1"),
        (("bench", "prodce"), "bench: there is no 'prodce' to measure"),
        (("completion", "tcsh"), "no 'tcsh'; there are bash, zsh, fish"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("topic", "list", "-b", "127.0.0.1:1"), "no broker answers at 127.0.0.1:1"),
        (("topic", "-b", "127.0.0.1:1", "list"), "no broker answers at 127.0.0.1:1"),
        (("cluster", "--bootstrap-server", "127.0.0.1:1"), "Is the cluster up? -b HOST:PORT"),
        (("broker", "-c", "/nowhere/broker.yaml"), "cannot read /nowhere/broker.yaml: No such file"),
        (("produce", "t", "/nowhere/lines"), "cannot read /nowhere/lines"),
        (("cluster", "--data", "/nowhere"), "/nowhere holds no cluster"),
        (("cluster", "--quorum-leader"), "--quorum-leader needs --data"),
        (
            ("log", "dump", "/nowhere/00000000000000000000.log"),
            "/nowhere/00000000000000000000.log: No such file",
        ),
        (("log", "dump", "/etc/hostname"), "/etc/hostname: no file of a log by its name"),
        (("log", "dump", "/nowhere/orders-0"), "/nowhere/orders-0: No such file"),
        (("log", "verify", "/nowhere"), "/nowhere does not exist"),
        (("group", "seek", "g", "--to-file", "/nowhere/offsets"), "/nowhere/offsets: No such file"),
        (("cluster", "health", "-b", "127.0.0.1:1"), "no broker answers at 127.0.0.1:1"),
        (("group", "list", "-b", "127.0.0.1:1"), "no broker answers at 127.0.0.1:1"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def shell(line: str) -> tuple[int, str]:
    """Return the exit code and standard error of a shell line, in which `ottla` is the command."""
    line = f'ottla() {{ "{sys.executable}" -m ottla "$@"; }}; {line}'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("ottla --help > /dev/full", 1, "No space left on device"),
        ("ottla produce t <&-", 1, "standard input is closed: name a file"),
        ("ottla version >&-", 0, ""),
        ("ottla topic list -b 127.0.0.1:1 >&-", 1, "no broker answers"),
        ("ottla group seek g --to-file - <&-", 1, "standard input is closed: name a file"),
        ("ottla nonsense 2>&-", 2, ""),
        ("ottla topic list -b 127.0.0.1:1 2>&-", 1, ""),
    ],
)
def test_unusual_streams_need_no_traceback(line: str, code: int, message: str) -> None:
    ended, error = shell(line)
    assert ended == code
    assert message in error
    assert error.count("\n") <= 1


async def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    found: list[bytes] = []
    with pytest.raises(MalformedRecord, match="the line is longer than 1048576 bytes"):
        async for lines in read_lines(io.BytesIO(b"a\nb\n" + b"x" * 2 * MAX_LINE_BYTES)):
            found += lines
    assert found == [b"a", b"b"], "the lines before it are not lost"


def test_what_the_output_cannot_show_needs_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTTLA_CONFIG_DIR", str(tmp_path))
    assert main(["profile", "create", "prod", "-b", "bj\u00f6rn:9092"]) == 0
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert main(["profile", "list"]) == 1
    assert capsys.readouterr().err == "ottla profile: '\u00f6' cannot be written in ascii\n"


READER = """
import asyncio, signal, sys
from ottla.cli.commands.produce import read_lines
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored below `nohup` and in the background of a shell
async def read():
    async for lines in read_lines(sys.stdin.buffer):
        print(*lines, flush=True)
asyncio.run(read())
"""


def test_control_c_ends_a_wait_for_lines() -> None:
    """A thread that waited for a terminal or a pipe kept the command until a line came."""
    with subprocess.Popen(
        [sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write(b"a\nb\nc")
        reader.stdin.flush()
        assert reader.stdout.readline() == b"b'a' b'b'\n"
        reader.send_signal(signal.SIGINT)
        try:
            assert reader.wait(60) == -signal.SIGINT
        finally:
            reader.kill()


async def test_lines_come_from_files_and_pipes(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a\nb\n\nc")
    with file.open("rb") as source:
        assert [line async for lines in read_lines(source) for line in lines] == [b"a", b"b", b"", b"c"]
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as other:
        other.write(b"a\nb")
        lines = read_lines(source)
        assert await anext(lines) == [b"a"]
        other.write(b"\nc")
        other.close()
        assert [line async for some in lines for line in some] == [b"b", b"c"]


def test_the_writer_of_a_named_pipe_keeps_its_reader(tmp_path: Path) -> None:
    """The pipe was opened, closed, and opened again, so that the writer failed in between."""
    os.mkfifo(tmp_path / "fifo")
    arguments = parser("produce").parse_args(["t", str(tmp_path / "fifo"), "-b", "127.0.0.1:1"])
    with pytest.raises(CommandFailed, match="no broker answers"):
        run_produce(arguments)


def test_nodes_start_without_what_tables_need() -> None:
    program = (
        "import sys; from ottla.cli import main; from ottla.cli.nodes import node; "
        "from ottla.cli.local_cluster import supervisor, up; "
        "print([m for m in ('rich', 'yaml', 'confluent_kafka', 'asyncio_dgram') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_offsets_as_people_write_them() -> None:
    words = ("beginning", "end", "0", "17", "-3", "@17")
    assert [parse_offset(word, 0) for word in words] == [
        ("beginning", 0), ("end", 0), ("offset", 0), ("offset", 17), ("last", 3), ("timestamp", 17),
    ]  # fmt: skip
    for wrong in ("", "-", "x", "1.5", "@"):
        with pytest.raises(UsageError):
            parse_offset(wrong, 0)
    assert [parse_until(word, 10_000) for word in ("17", "@17", "@1970-01-01T00:00:01Z", "@7s")] == [
        ("offset", 17), ("timestamp", 17), ("timestamp", 1000), ("timestamp", 3000),
    ]  # fmt: skip
    for wrong in ("", "end", "-3", "x", "@", str(2**63), "9" * 5_000):
        with pytest.raises(UsageError):
            parse_until(wrong, 0)


def test_help_needs_no_client() -> None:
    program = (
        "import sys; from ottla.cli.main import main\n"
        "try: main(['topic', '--help'])\nexcept SystemExit: pass\n"
        "sys.stderr.write(str([m for m in ('ottla.client.admin', 'asyncio', 'rich') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]"


def test_log_lines_are_one_event_each() -> None:
    record = logging.LogRecord(
        "ottla.dataplane.log", logging.WARNING, "f", 1, 'disk "%s" full', ("a b",), None
    )
    line = KeyValueFormatter().format(record)
    assert line.endswith('Z level=warning logger=dataplane.log msg="disk \\"a b\\" full"')
    fields = json.loads(JsonFormatter().format(record))
    assert (fields["level"], fields["msg"]) == ("warning", 'disk "a b" full')
