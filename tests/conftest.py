"""Settings and hooks for all tests."""

from __future__ import annotations

import gc
import math
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.shared_fixtures import SharedFixtures, group_of, is_below

HERE = Path(__file__).parent
SECONDS_MAX = 120
"""Time limit in seconds of a test without a mark; equals `timeout` in pyproject.toml."""
LONG = (HERE / "simulation", HERE / "testing")
"""Folders whose tests take seconds, even without a cluster."""
NAMED_BYTES_MAX = 200
"""Longest value in bytes that becomes part of a test's name."""

# How long an example takes depends on what else the machine does. No test asserts it.
settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SharedFixtures())


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Keep large values out of test names, because pytest-xdist sends each name many times."""
    if isinstance(val, str | bytes) and len(val) > NAMED_BYTES_MAX:
        return f"{argname} of {len(val)}"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable the garbage collector during collection.

    Few of the objects are garbage, and searching them takes a sixth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


# After the folders have named their groups, and before pytest-xdist looks for them.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests of one group together, and start long tests first.

    All processes then end at about the same time, with short tests. Pytest-xdist starts groups first, too, the largest
    first.
    """
    for item in items:
        if group_of(item) is None and (name := _shares(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(name))
    places: dict[str | None, int] = {}
    for place, item in enumerate(items):
        places.setdefault(group_of(item), place)
    items.sort(key=lambda item: (-_begins_early(item), places[group_of(item)]))


def _shares(item: pytest.Item) -> str | None:
    """Return the name of the resource that a test shares with others: the module's cluster, or the parsed files.

    None if it shares nothing.
    """
    if item.path.parent == HERE:
        return "all files"
    return item.path.stem if "cluster" in getattr(item, "fixturenames", ()) else None


def _begins_early(item: pytest.Item) -> float:
    """Return the priority of a test: infinite in a group, else its time limit in seconds, or 0 for short tests."""
    if group_of(item) is not None:
        return math.inf
    if (mark := item.get_closest_marker("timeout")) is not None:
        return float(mark.args[0])
    starts = any(item.get_closest_marker(name) is not None for name in ("cluster", "java", "programs"))
    return SECONDS_MAX if starts or any(is_below(folder, item) for folder in LONG) else 0
