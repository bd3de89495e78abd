"""Decides which batches are written, and by which run. Pure, except that Spark is asked for the query's id.

A query stores the number of its last batch in the outside system, by the rule of Delta's `txnAppId` and `txnVersion`.
A batch whose number is not above the stored number was committed, and is skipped. That alone would let two queries of
the same name skip each other's batches silently. So the ids of Spark's query, of the run and of the function are
stored, too:

- Another query under the same name (a new checkpoint, say) is refused.
- The first batch of a run takes over, even if it is a replay; a run that was taken over by another since is refused.
- Two functions of one run under the same name are refused.
- A second call of a function for the same batch of a run is refused: its rows would be skipped.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..streaming_query import NoQuery, query_of
from .failures import OutsideError, QueryReplaced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NONE_YET: Final = -1
"""Stored number before the first batch is committed: Spark numbers batches from 0."""
QUERY_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_taking: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch with the ids of its writer. `name`: the key of its progress, Spark's id of the query unless the user
    named it.
    """

    name: str
    spark_query: str
    run: str
    writer: str
    number: int

    def __str__(self) -> str:
        return f"batch {self.number} of query {self.name!r}"


@dataclass(frozen=True, slots=True)
class Kept:
    """Progress that the outside system stores for a query: its last committed batch, and its last writer."""

    spark_query: str
    run: str
    writer: str
    number: int


def is_new(kept: Kept | None, batch: Batch, begun: bool) -> bool:
    """Return whether the batch has to be written: False if it is committed.

    `begun`: the store already names this run as the writer. Raises QueryReplaced.
    """
    if kept is None:
        return True
    if kept.spark_query != batch.spark_query:
        raise QueryReplaced(
            f"{batch}: progress under this name is that of another query (id {kept.spark_query}, at batch "
            f"{kept.number}); this one has id {batch.spark_query}, so it has another checkpoint. Name it otherwise, or "
            "delete that progress"
        )
    if kept.run == batch.run and kept.writer != batch.writer:
        raise QueryReplaced(
            f"{batch}: another function of the same query keeps its progress under this name; give each its own"
        )
    if begun and kept.run != batch.run:
        raise QueryReplaced(
            f"{batch}: another run of the query (run {kept.run}, at batch {kept.number}) has taken over from this one "
            f"(run {batch.run}): two may not run at once"
        )
    return batch.number > kept.number


class Numbering:
    """The batches of a `foreachBatch` function: for each query of Spark's, the current batch and the run that has
    begun."""

    def __init__(self, name: str | None = None) -> None:
        if name is not None and not QUERY_NAME.fullmatch(name):
            raise ValueError(
                f"a query's name is 1 to 100 of the letters A-Z and a-z, digits, '.', '_' and '-', not {name!r}"
            )
        self._name = name
        self._writer = uuid.uuid4().hex
        self._begun: dict[str, str] = {}
        self._taken: dict[str, Batch] = {}

    @contextmanager
    def batch(self, frame: DataFrame, number: int) -> Iterator[Batch]:
        """Return a context manager that yields the batch with the ids of Spark's query and run. A function takes each
        batch once per run; after a failure the program may call it again.

        Raises OutsideError for a second call, and if Spark does not report the query.
        """
        try:
            query, run = query_of(frame)
        except NoQuery as error:
            raise OutsideError(str(error)) from None
        batch = Batch(self._name or query, query, run, self._writer, number)
        with _taking:
            if self._taken.get(query) == batch:
                raise OutsideError(
                    f"{batch}: the function is called twice for it, and the rows of the second call would be left out "
                    "as written: make a second function with another query=... (exactly_once: another target=...), "
                    "or give one call all rows"
                )
            self._taken[query] = batch
        try:
            yield batch
        except BaseException:
            with _taking:
                if self._taken.get(query) == batch:
                    del self._taken[query]
            raise

    def is_new(self, kept: Kept | None, batch: Batch) -> bool:
        """Return whether the batch has to be written; see the function `is_new`."""
        return is_new(kept, batch, begun=self._begun.get(batch.spark_query) == batch.run)

    def begun(self, batch: Batch) -> None:
        """Record that the store names this run as the writer: another run found there later has replaced this one."""
        self._begun[batch.spark_query] = batch.run
