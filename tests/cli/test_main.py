"""The command line: help everywhere, typing mistakes named, exit codes, quick start-up."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

import pytest

from ottla import __version__
from ottla.cli.consume import formatter, parse_offset
from ottla.cli.failures import CommandFailed, UsageError
from ottla.cli.logs import JsonFormatter, KeyValueFormatter
from ottla.cli.main import COMMANDS, main
from ottla.cli.produce import MAX_LINE_BYTES, _lines
from ottla.client.fetched import ConsumerRecord

RECORD = ConsumerRecord("t", 1, 5, 1700000000000, None, b"v=1", (("h", b"x"), ("n", None)))


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *words], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def test_the_version() -> None:
    assert run("version") == (0, f"ottla {__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"ottla {name} " in capsys.readouterr().out.partition("examples")[2]


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "a command is missing"),
        (("brokr",), "there is no command 'brokr'; did you mean 'broker'?"),
        (("zzz",), "there is no command 'zzz'; there are up"),
        (("up", "--quorum", "2"), "--quorum takes 1, 3 or 5, not 2"),
        (("up", "--brokers", "0"), "--brokers takes 1 to 100, not 0"),
        (("up", "--base-port", "70000"), "--base-port takes 1 to"),
        (("up", "--set", "log.segment.byte=1"), "did you mean log.segment.bytes?"),
        (("up", "--set", "log.segment.bytes=big"), "Invalid value 'big' for configuration log.segment.bytes"),
        (("up", "--set", "node.id=7"), "--set node.id: ottla up decides this itself"),
        (("consume", "t", "-o", "last"), "-o takes beginning, end, N, -N or @MS, not 'last'"),
        (("consume", "t", "-o", "json"), "for the format give --output json"),
        (("consume", "t", "-g", "g", "-p", "1"), "give -g or -p"),
        (("consume", "t", "-f", "%q"), "-f does not know %q"),
        (("produce", "t", "-H", "x"), "-H takes key=value, not 'x'"),
        (("topic", "create", "t", "--config", "x"), "--config takes key=value, not 'x'"),
        (("topic", "list", "-b", "host:port"), "'host:port' is no bootstrap server"),
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
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("words", [("topic",), ("topic", "creat"), ("produce",), ("broker",)])
def test_missing_arguments_exit_with_2(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2


def shell(line: str) -> tuple[int, str]:
    """The exit code and standard error of a shell line, in which `ottla` is the command."""
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
    ],
)
def test_unusual_streams_need_no_traceback(line: str, code: int, message: str) -> None:
    ended, error = shell(line)
    assert ended == code
    assert message in error
    assert error.count("\n") <= 1


async def test_a_line_without_end_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(CommandFailed, match="a line is longer than 1048576 bytes"):
        async for _ in _lines(io.BytesIO(b"x" * 2 * MAX_LINE_BYTES)):
            pass


def test_nodes_start_without_what_tables_need() -> None:
    program = (
        "import sys; from ottla.cli import main, node, up, supervisor; "
        "print([m for m in ('rich', 'yaml', 'confluent_kafka', 'asyncio_dgram') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("pattern", "printed"),
    [
        ("%s\\n", b"v=1\n"),
        ("%t %p:%o %k=%s %T\\t%K %S %h%%", b"t 1:5 =v=1 1700000000000\t-1 3 h=x,n=%"),
        ("\\\\ %s", b"\\ v=1"),
        ("", b""),
        ("\u00e9 %s", "\u00e9 v=1".encode()),
    ],
)
def test_formats(pattern: str, printed: bytes) -> None:
    assert formatter(pattern)(RECORD) == printed


def test_offsets_as_people_write_them() -> None:
    words = ("beginning", "end", "0", "17", "-3", "@17")
    assert [parse_offset(word) for word in words] == [
        ("beginning", 0), ("end", 0), ("offset", 0), ("offset", 17), ("last", 3), ("timestamp", 17),
    ]  # fmt: skip
    for wrong in ("", "-", "x", "1.5", "@"):
        with pytest.raises(UsageError):
            parse_offset(wrong)


def test_log_lines_are_one_event_each() -> None:
    record = logging.LogRecord(
        "ottla.dataplane.log", logging.WARNING, "f", 1, 'disk "%s" full', ("a b",), None
    )
    line = KeyValueFormatter().format(record)
    assert line.endswith('Z level=warning logger=dataplane.log msg="disk \\"a b\\" full"')
    fields = json.loads(JsonFormatter().format(record))
    assert (fields["level"], fields["msg"]) == ("warning", 'disk "a b" full')
