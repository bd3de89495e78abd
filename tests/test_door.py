"""`from ottla import ...`: every name is there, for programs and type checkers, and costs nothing until it is used."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import ottla

DOOR = Path(ottla.__file__)


def shown_to_type_checkers() -> dict[str, str]:
    """Name -> module, as the `if TYPE_CHECKING` block has it."""
    blocks = [one for one in ast.parse(DOOR.read_text()).body if isinstance(one, ast.If)]
    block = next(one for one in blocks if ast.unparse(one.test) == "TYPE_CHECKING")
    return {
        alias.name: str(statement.module)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def test_type_checkers_see_what_there_is() -> None:
    shown = shown_to_type_checkers()
    assert sorted(shown) == sorted(ottla.__all__)
    shown.pop("sync")
    assert shown == {name: f"ottla.{module}" for module, names in ottla._HOMES.items() for name in names}


def kinds(hint: object) -> Iterator[type]:
    """Yield the classes in a type hint."""
    if isinstance(hint, type):
        yield hint
    for part in get_args(hint):
        for one in part if isinstance(part, list) else [part]:
            yield from kinds(one)


def test_programs_can_import_whatever_the_admin_client_takes_and_gives() -> None:
    kept_back = {
        f"{kind.__module__}.{kind.__name__}, in Admin.{name}"
        for name, method in inspect.getmembers(ottla.Admin, inspect.isfunction)
        if not name.startswith("_")
        for hint in get_type_hints(method).values()
        for kind in kinds(hint)
        if kind.__module__.startswith("ottla.") and kind.__name__ not in ottla.__all__
    }
    assert not kept_back


def test_every_name_can_be_had() -> None:
    assert set(ottla.__all__) <= set(dir(ottla))
    imported: dict[str, object] = {}
    for name in ottla.__all__:
        exec(f"from ottla import {name}", imported)
    others = [name for name in ottla.__all__ if imported[name] is not getattr(ottla, name)]
    assert not others


def test_an_unknown_name_is_told_with_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match="ottla has no 'Produccer'; did you mean 'Producer'"):
        _ = ottla.Produccer  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"ottla has no 'zzzz'$"):
        _ = ottla.zzzz  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'Produccer' from 'ottla'"):
        from ottla import Produccer  # type: ignore[attr-defined]  # noqa: F401


def test_the_package_alone_loads_nothing_of_the_client() -> None:
    script = (
        "import sys, ottla; print(*(one for one in sys.modules if one.startswith(('ottla.', 'asyncio'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ottla.version"]
