"""What holds for all tests."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on what else the machine does. No test asserts it.
settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the tests that share nothing, those that may take long begin first: short ones end the run.

    So all processes end at about one time. Groups, with which pytest-xdist begins, keep their order.
    """
    items.sort(key=_begins_early, reverse=True)


def _begins_early(item: pytest.Item) -> float:
    """The seconds that its own mark allows it; 0 if it has none."""
    if item.get_closest_marker("xdist_group") is not None:
        return math.inf
    mark = item.get_closest_marker("timeout")
    return 0 if mark is None else mark.args[0]
