"""A cluster's topics, with queries over them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import LocalCluster

from .reading import Topics


@pytest.fixture(scope="module")
def topics(spark: Any, spark_cluster: LocalCluster) -> Iterator[Topics]:
    made = Topics(spark, spark_cluster)
    yield made
    made.stop()
