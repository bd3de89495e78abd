"""Programs that others wrote, against real clusters, with kills in the middle.

All tests in this folder are marked `programs`: they run with `--programs` (make programs). Those marked `short` are
part of `make test` as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import RunningCluster, running_cluster
from tests.integration.history import SMALL_CLUSTER
from tests.java import tools as tools
from tests.shared_fixtures import is_below

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--programs", action="store_true", help="run the programs that others wrote, all of them"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    everything = config.getoption("--programs", default=False)
    for item in items:
        if not is_below(HERE, item):
            continue
        item.add_marker(pytest.mark.programs)
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
        if not everything and item.get_closest_marker("short") is None:
            item.add_marker(pytest.mark.skip(reason="one of the long ones: make programs"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with running_cluster(folder, settings=SMALL_CLUSTER) as running:
        yield running
