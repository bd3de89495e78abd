"""The table for users of other clients names only existing methods."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import ottla

PAGE = Path(__file__).resolve().parents[2] / "docs" / "CLIENT.md"
PLAIN = {"async for", "async with", "add_done_callback", "error()"}
"""Entries of the column that belong to Python, asyncio or another client."""


def cells() -> list[tuple[int, str]]:
    """Return the cells of the last column, by line."""
    section = PAGE.read_text().split("## Coming from another client\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) > 30
    assert {row.count(" | ") for row in rows} == {3}
    return [(number, row.rsplit(" | ", 1)[1]) for number, row in enumerate(rows)]


NAMES = [(number, name) for number, cell in cells() for name in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize(("number", "name"), NAMES)
def test_the_last_column_names_what_there_is(number: int, name: str) -> None:
    if name in PLAIN:
        return
    whole = re.fullmatch(r"(?:(sync)\.)?([A-Z]\w+)(?:\.(\w+)|\((\w+)=\))?", name)
    assert whole is not None, name
    module, owner, member, option = whole.groups()
    found = getattr(ottla.sync if module else ottla, owner)
    if member == "code":
        assert "code" in inspect.signature(found).parameters
    elif member is not None:
        assert hasattr(found, member)
    elif option is not None:
        assert option in inspect.signature(found).parameters


def test_defaults_are_as_the_table_says() -> None:
    options = inspect.signature(ottla.Consumer).parameters
    assert options["enable_auto_commit"].default is False
    assert options["isolation_level"].default == "read_uncommitted"
