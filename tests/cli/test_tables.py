"""Tables in narrow terminals: numbers and headings stay whole; spare columns and the middle of names give way."""

from __future__ import annotations

import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from ottla.cli.terminal.output import print_table
from ottla.cli.terminal.shades import Shade, Shaded, has_colours, lag, state
from ottla.cli.terminal.table_layout import GAP, NAME_MIN, lay_out, lines_of, shorten

COLUMNS = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "MEMBER-ID", "CLIENT-ID", "HOST")
SPARE = ("MEMBER-ID", "HOST", "CLIENT-ID")
ROWS = [
    ("orders", 0, 1_234_567_890, 1_234_567_899, lag(9), "billing-8a7b7c7d-1111-2222", "billing", "/10.0.0.7"),
    ("orders-of-europe-and-africa", 11, 7, 7, lag(0), "-", "-", "-"),
]
ESCAPES = re.compile(r"\x1b\[\d+m")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(
    monkeypatch: pytest.MonkeyPatch, width: int, *, is_terminal: bool = True, **options: object
) -> list[str]:
    """Return the lines of the table in a terminal of this width, or in a pipe."""
    monkeypatch.setattr(sys, "stdout", Terminal() if is_terminal else io.StringIO())
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(COLUMNS, ROWS, spare=SPARE, **options)  # type: ignore[arg-type]
    assert isinstance(sys.stdout, io.StringIO)
    return sys.stdout.getvalue().splitlines()


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 200])
def test_numbers_and_headings_are_whole_at_any_width(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines = shown(monkeypatch, width)
    assert max(map(cell_len, lines[:3])) <= width
    headings = lines[0].split()
    assert headings[:5] == list(COLUMNS[:5])
    assert set(headings) <= set(COLUMNS)
    assert lines[1].split()[1:5] == ["0", "1234567890", "1234567899", "9"]
    assert lines[2].split()[1:5] == ["11", "7", "7", "0"]


def test_what_is_left_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines = shown(monkeypatch, 60)
    assert lines[3:] == [
        "(left out: MEMBER-ID, HOST, CLIENT-ID; shortened: TOPIC. -o",
        "wide, -o json or a wider terminal shows all)",
    ]
    assert lines[2].split()[0] == "orders…frica"
    assert "(left out: MEMBER-ID, HOST. " in shown(monkeypatch, 95)[3]
    assert "left out" not in shown(monkeypatch, 200)[-1]


def test_a_wide_table_and_a_pipe_have_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    wide = shown(monkeypatch, 60, wide=True)
    assert len(wide) == 3
    assert wide[1].split() == [str(cell) for cell in ROWS[0]]
    assert shown(monkeypatch, 60, is_terminal=False) == ["\t".join(map(str, row)) for row in (COLUMNS, *ROWS)]


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = shown(monkeypatch, 200, is_terminal=False)
    assert not any("\x1b" in line for line in plain)
    coloured = shown(monkeypatch, 200)
    assert "\x1b[33m9\x1b[0m" in coloured[1]
    assert "\x1b" not in coloured[2]  # No lag.
    monkeypatch.setenv("NO_COLOR", "1")
    assert shown(monkeypatch, 200) == [ESCAPES.sub("", line) for line in coloured]


@pytest.mark.parametrize(
    ("environ", "on_terminal", "in_pipe"),
    [
        ({}, True, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, True, True),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_wishes_about_colours(environ: dict[str, str], on_terminal: bool, in_pipe: bool) -> None:
    assert has_colours(Terminal(), environ) is on_terminal
    assert has_colours(io.StringIO(), environ) is in_pipe


def test_states_have_colours() -> None:
    assert state("healthy") == Shaded("healthy", Shade.GOOD)
    assert state("Stable") == Shaded("Stable", Shade.GOOD)
    assert state("under-replicated") == Shaded("under-replicated", Shade.IMPAIRED)
    assert state("offline") == Shaded("offline", Shade.BAD)
    assert state("Empty") == "Empty"
    assert [lag(value) for value in (0, "-", None)] == [0, "-", None]


def test_prose_goes_on_in_further_lines() -> None:
    rule = "MatchingAcl(DENY READ on topic LITERAL orders for User:ann from 10.0.0.0/8), and no other rule"
    rows = [("denied", rule), ("allowed", "")]
    lines = lines_of(("RESULT", "RULE"), rows, lay_out(("RESULT", "RULE"), rows, 40))
    assert max(map(len, lines)) <= 40
    assert " ".join(line[len("allowed") + GAP :] for line in lines[1:-1]) == rule
    assert lines[-1] == "allowed"


def test_a_sentence_replaces_the_headings_of_an_empty_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_table(("GROUP", "STATE"), [], empty="There are no groups.")
    assert tuple(capsys.readouterr()) == ("GROUP\tSTATE\n", "There are no groups.\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(("GROUP", "STATE"), [], empty="There are no groups.")
    assert tuple(capsys.readouterr()) == ("", "There are no groups.\n")


@given(st.text(), st.integers(min_value=3, max_value=40))
def test_shortened_names_fit(text: str, width: int) -> None:
    short = shorten(text, width)
    assert cell_len(short) <= width
    assert short == text or "…" in short


WORDS = st.sampled_from(
    ["", "-", "a", "orders", "orders-of-europe-and-africa-and-asia", "注文注文注文注文注文", "x " * 40]
)


@given(
    st.lists(st.tuples(WORDS, st.integers(-5, 10**18), WORDS, WORDS), max_size=4),
    st.integers(min_value=20, max_value=200),
)
def test_every_layout_keeps_numbers_and_fits_if_it_can(
    rows: list[tuple[str, int, str, str]], width: int
) -> None:
    headings = ("TOPIC", "LAG", "REASON", "HOST")
    texts = [[str(cell) for cell in row] for row in rows]
    layout = lay_out(headings, texts, width, ("HOST",))
    lines = lines_of(headings, texts, layout)
    assert all(cell_len(line) <= layout.width for line in lines)
    digits = max([len("LAG"), *(len(row[1]) for row in texts)])
    assert layout.widths[1] == digits
    assert layout.width <= max(width, NAME_MIN + GAP + digits + GAP + 24)
    text = "\n".join(lines)
    assert all(row[1] in text for row in texts)
