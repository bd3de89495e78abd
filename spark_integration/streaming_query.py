"""The query, run and batch that Spark is working on. Spark reports them only in local properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"


class NoQuery(RuntimeError):
    """An error: Spark does not report the query that this batch belongs to."""


class StreamingQuery(NamedTuple):
    """Ids of a streaming query. `query` stays with the checkpoint; `run` changes with each start."""

    query: str
    run: str


def query_of(frame: DataFrame) -> StreamingQuery:
    """Return the query of a batch, for functions of foreachBatch. Raises NoQuery."""
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
