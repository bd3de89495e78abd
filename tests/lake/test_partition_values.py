"""Partition values, compared with the transforms of pyiceberg for single values."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.types import LongType, NestedField, TimestamptzType

from ottla.lake.failures import TableRefused
from ottla.lake.iceberg.partition_values import partition_values
from ottla.lake.record_columns import EARLIEST_MS, LATEST_MS

SCHEMA = Schema(NestedField(1, "t", TimestamptzType()), NestedField(2, "n", LongType()))
TIMES = st.integers(EARLIEST_MS * 1000, LATEST_MS * 1000) | st.integers(-(10**12), 10**12) | st.none()


@pytest.mark.parametrize(
    "transform", [YearTransform(), MonthTransform(), DayTransform(), HourTransform()], ids=str
)
@given(st.lists(TIMES, min_size=1, max_size=20))
def test_times_are_in_the_partition_that_iceberg_says(
    transform: Transform[int, int], times: list[int | None]
) -> None:
    rows = pa.table({"t": pa.array(times, pa.timestamp("us", tz="UTC"))})
    found = partition_values(rows, PartitionField(1, 1000, transform, "p"), SCHEMA)
    assert found.to_pylist() == [transform.transform(TimestamptzType())(time) for time in times]


def test_identity_is_the_column_and_other_transforms_name_the_package_that_they_need() -> None:
    rows = pa.table({"n": pa.array([1, 2])})
    assert partition_values(rows, PartitionField(2, 1000, IdentityTransform(), "p"), SCHEMA).to_pylist() == [
        1,
        2,
    ]
    with pytest.raises(TableRefused, match="pip install pyiceberg-core"):
        partition_values(rows, PartitionField(2, 1000, BucketTransform(4), "p"), SCHEMA)
