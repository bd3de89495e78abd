"""What the tests of a group share ends with the group, not with the run.

A cluster whose nodes idle takes time from everybody else. So a fixture of scope `session` ends as soon as the process
goes on to another group, and with a test that does not take it. A later test that takes it starts it anew.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest


class SharedFixtures:
    """A plugin that ends them. What pytest and its plugins define themselves stays for the run."""

    def __init__(self) -> None:
        self._set_up: list[tuple[pytest.FixtureDef[Any], Any]] = []
        """With the requests that they were set up for, in that order."""

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
        done = [one for one in self._set_up if not _takes(nextitem, one[0])]
        self._set_up = [one for one in self._set_up if _takes(nextitem, one[0])]
        for fixturedef, request in reversed(done):
            fixturedef.finish(request)
        return result


def group_of(item: pytest.Item) -> str | None:
    """The group of pytest-xdist in which it runs, which makes one of several marks; None if it runs by itself."""
    names = {str(mark.args[0]) for mark in item.iter_markers("xdist_group")}
    return "_".join(sorted(names)) or None


def is_below(folder: Path, item: pytest.Item) -> bool:
    """Whether its file is in this folder or deeper. `Path.parents` takes long for thousands of items."""
    return str(item.path).startswith(f"{folder}{os.sep}")


def _takes(item: pytest.Item, fixturedef: pytest.FixtureDef[Any]) -> bool:
    """Another folder may have a fixture of the same name."""
    names = getattr(item, "fixturenames", ())
    return fixturedef.argname in names and item.nodeid.startswith(fixturedef.baseid)
