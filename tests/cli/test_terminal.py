"""Text chosen by other users (names, records) cannot control a terminal, and reaches files and pipes unchanged."""

from __future__ import annotations

import ast
import io
import json
import logging
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.nodes.logs import KeyValueFormatter
from ottla.cli.terminal.json_records import json_line
from ottla.cli.terminal.output import print_json, print_table
from ottla.cli.terminal.record_format import formatter
from ottla.cli.terminal.shades import Shade, Shaded
from ottla.cli.terminal.text import (
    counted,
    json_escaped,
    note,
    say,
    say_lines,
    show_progress,
    visible,
    visible_bytes,
    visible_lines,
)
from ottla.client.records import ConsumerRecord

CLI = Path(__file__).resolve().parents[2] / "cli"
NASTY = "orders\x1b[31m\x9b2J\x07\x7f\u202egroup\n\tx\r"
SHOWN = "orders\\x1b[31m\\x9b2J\\x07\\x7f\\u202egroup\\n\\tx\\r"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


either = pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])


@pytest.fixture
def to(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Send later output to a terminal, or to a pipe."""

    def redirect(is_terminal: bool) -> None:
        kind = Terminal if is_terminal else io.StringIO
        monkeypatch.setattr(sys, "stdout", kind())
        monkeypatch.setattr(sys, "stderr", kind())
        monkeypatch.setenv("COLUMNS", "200")

    return redirect


def printed() -> str:
    assert isinstance(sys.stdout, io.StringIO)
    return sys.stdout.getvalue()


def noted() -> str:
    assert isinstance(sys.stderr, io.StringIO)
    return sys.stderr.getvalue()


@either
def test_lines_may_have_a_colour(
    is_terminal: bool, to: Callable[[bool], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    to(is_terminal)
    say(Shaded(NASTY, Shade.BAD))
    assert printed() == (f"\x1b[31m{SHOWN}\x1b[0m\n" if is_terminal else f"{NASTY}\n")


@either
def test_lines_and_notes(is_terminal: bool, to: Callable[[bool], None]) -> None:
    to(is_terminal)
    say(NASTY)
    note(f"there is no group {NASTY}")
    expected = SHOWN if is_terminal else NASTY
    assert printed() == expected + "\n"
    assert noted() == f"there is no group {expected}\n"


@either
def test_tables(is_terminal: bool, to: Callable[[bool], None]) -> None:
    to(is_terminal)
    print_table(("GROUP", "LAG"), [(NASTY, 5)])
    assert (SHOWN if is_terminal else NASTY) in printed()
    assert ("\x1b[31m" in printed()) is not is_terminal


@either
def test_json_means_the_same_and_steers_nothing(is_terminal: bool, to: Callable[[bool], None]) -> None:
    to(is_terminal)
    print_json({"group": NASTY})
    assert json.loads(printed()) == {"group": NASTY}
    assert visible_lines(printed()) == printed()


@either
def test_texts_of_ours_keep_their_lines(is_terminal: bool, to: Callable[[bool], None]) -> None:
    to(is_terminal)
    say_lines("one\n\ttwo\n")
    assert printed() == "one\n\ttwo\n"


@either
def test_progress_shows_on_terminals_alone(is_terminal: bool, to: Callable[[bool], None]) -> None:
    to(is_terminal)
    show_progress(f"1/2 {NASTY}")
    assert noted() == (f"\r\x1b[K1/2 {SHOWN}" if is_terminal else "")


def test_numbers_with_their_nouns() -> None:
    assert [counted(number, "partition") for number in (0, 1, 1204)] == [
        "0 partitions",
        "1 partition",
        "1,204 partitions",
    ]
    assert counted(2, "copy", "copies") == "2 copies"


RECORD = ConsumerRecord("t", 1, 5, 0, b"k\x1b]0;title\x07", b"v\xff\x9b\nline\ttab", (("h\x1b", b"\x1b"),))


def test_records_on_a_terminal() -> None:
    line = formatter("%k %s %h", shown=visible_bytes)(RECORD)
    assert line == b"k\\x1b]0;title\\x07 v\\xff\\x9b\nline\ttab h\\x1b=\\x1b"


def test_records_in_a_pipe_are_exact() -> None:
    assert formatter("%k")(RECORD) == RECORD.key
    assert formatter("%s")(RECORD) == RECORD.value


def test_records_as_json_are_exact_for_whatever_reads_them() -> None:
    record = ConsumerRecord("t", 0, 0, 0, None, "\x9b\u202e".encode(), ())
    line = json_line(record)
    assert json.loads(line)["value"] == "\x9b\u202e"
    assert visible_bytes(line) == line


def test_log_lines_never_steer_the_terminal_that_shows_them() -> None:
    record = logging.LogRecord("ottla.x", logging.WARNING, "f", 1, "client %s", (NASTY,), None)
    line = KeyValueFormatter().format(record)
    assert visible(line) == line


@given(st.text())
def test_nothing_visible_is_a_control_character(text: str) -> None:
    assert not any(unicodedata.category(character) == "Cc" for character in visible(text))
    assert json.loads(json_escaped(json.dumps(text, ensure_ascii=False))) == text


def test_commands_print_by_these_functions_alone() -> None:
    printed = [
        f"{path.relative_to(CLI.parent)}:{node.lineno}"
        for path in sorted(CLI.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printed, "\n".join(printed)
