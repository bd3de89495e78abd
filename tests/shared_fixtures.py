"""A plugin that ends shared fixtures with their group of tests instead of with the run.

The idle nodes of a cluster take time from other tests. So a fixture of scope `session` ends when the process goes on to
another group, or to a test without the fixture. A later test that needs the fixture sets it up once more.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest


class SharedFixtures:
    """A plugin that ends shared fixtures early. Fixtures that pytest and its plugins define stay for the run."""

    def __init__(self) -> None:
        self._set_up: list[tuple[pytest.FixtureDef[Any], Any]] = []
        """Fixtures in the order of their set-up, each with its request."""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: Any
    ) -> Generator[None, object, object]:
        value = yield
        if fixturedef.scope == "session" and fixturedef.baseid:
            self._set_up.append((fixturedef, request))
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        result = yield
        group = group_of(item)
        if group is None or nextitem is None or group == group_of(nextitem):
            return result
        done = [fixture for fixture in self._set_up if not _takes(nextitem, fixture[0])]
        self._set_up = [fixture for fixture in self._set_up if _takes(nextitem, fixture[0])]
        for fixturedef, request in reversed(done):
            fixturedef.finish(request)
        return result


def group_of(item: pytest.Item) -> str | None:
    """Return the pytest-xdist group of a test, joined from all its marks; None if the test belongs to no group."""
    names = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
    return "_".join(sorted(names)) or None


def is_below(folder: Path, item: pytest.Item) -> bool:
    """Return whether the test's file is in this folder or deeper.

    `Path.parents` takes too long for thousands of items.
    """
    return str(item.path).startswith(f"{folder}{os.sep}")


def _takes(item: pytest.Item, fixturedef: pytest.FixtureDef[Any]) -> bool:
    """Return whether the test uses this fixture, and not a fixture of the same name in another folder."""
    names = getattr(item, "fixturenames", ())
    return fixturedef.argname in names and item.nodeid.startswith(fixturedef.baseid)
