"""Every name of `from ottla import ...` exists, for programs and type checkers, and is loaded only on first use."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import ottla

DOOR = Path(ottla.__file__)


def listed() -> dict[str, str]:
    """Return the module of each name, as the stub lists them for type checkers and for the import at first use."""
    return {
        alias.name: str(statement.module)
        for statement in ast.parse(DOOR.with_suffix(".pyi").read_text()).body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def test_names_come_from_the_modules_that_the_stub_lists() -> None:
    names = listed()
    assert sorted(names) == sorted(ottla.__all__)
    assert names.pop("sync") == "None"
    assert len(names) > 90
    for name, module in names.items():
        home = importlib.import_module(f"ottla.{module}")
        assert getattr(ottla, name) is getattr(home, name)


def kinds(hint: object) -> Iterator[type]:
    """Yield the classes in a type hint."""
    if isinstance(hint, type):
        yield hint
    for part in get_args(hint):
        for piece in part if isinstance(part, list) else [part]:
            yield from kinds(piece)


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
        "import sys, ottla; print(*(name for name in sys.modules if name.startswith(('ottla.', 'asyncio'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ottla.version"]
