"""Which query, which run of it and which batch Spark is at: it says so in local properties, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"


class NoQuery(RuntimeError):
    """Spark does not say which query this is."""


class StreamingQuery(NamedTuple):
    """`query`: stays with the checkpoint. `run`: another one after each start."""

    query: str
    run: str


def query_of(frame: DataFrame) -> StreamingQuery:
    """For functions of foreachBatch: of which query a batch is. Raises NoQuery."""
    context = getattr(frame.sparkSession, "sparkContext", None)
    if context is None:
        raise NoQuery(
            "this function needs a classic Spark session: Spark Connect does not say which query this is"
        )
    query, run = _property(context, QUERY_ID), _property(context, _RUN_ID)
    if query is None or run is None:
        raise NoQuery(
            "this function is for foreachBatch of a streaming query: called elsewhere, or in another thread "
            "than Spark's, it cannot know which query and which run it writes for"
        )
    return StreamingQuery(query, run)


def _property(context: Any, name: str) -> str | None:
    value: str | None = context.getLocalProperty(name)
    return value
