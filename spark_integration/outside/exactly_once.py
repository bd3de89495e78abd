"""A function for `foreachBatch` that runs in one transaction with the number of its batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from .numbering import Batch, Kept, Numbering
from .tasks import pass_over

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HandleT = TypeVar("HandleT")
HandleT_co = TypeVar("HandleT_co", covariant=True)


class OutsideTransaction(Protocol[HandleT_co]):
    """An open transaction of the outside system, in which nobody else may change the progress of the query."""

    @property
    def handle(self) -> HandleT_co:
        """What the function writes with."""

    @property
    def kept(self) -> Kept | None:
        """The query's progress, None before its first batch."""

    def keep(self, batch: Batch) -> None:
        """Note, as part of the transaction, that the batch is committed by its commit."""

    def claim(self, batch: Batch) -> None:
        """Note, as part of the transaction, that the batch's run is the one that writes, and no older one."""


class Progress(Protocol[HandleT_co]):
    """Where the numbers of committed batches are kept: in the system that the data goes to."""

    def transaction(self, name: str, target: str) -> AbstractContextManager[OutsideTransaction[HandleT_co]]:
        """Begin one, with the progress of this query and target locked; commit at the end, roll back what raises."""


class ExactlyOnceFunction(Generic[HandleT]):
    """See `exactly_once`."""

    def __init__(
        self,
        function: Callable[[DataFrame, int, HandleT], None],
        progress: Progress[HandleT],
        query: str | None,
        target: str,
    ) -> None:
        self._function = function
        self._progress = progress
        self._numbering = Numbering(query)
        self._target = target

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Write a batch, unless it is committed. Raises OutsideError, and whatever the function raises."""
        with self._numbering.batch(frame, number) as batch:
            self._take(frame, batch)

    def _take(self, frame: DataFrame, batch: Batch) -> None:
        with self._progress.transaction(batch.name, self._target) as transaction:
            new = self._numbering.is_new(transaction.kept, batch)
            if new:
                self._function(frame, batch.number, transaction.handle)
                transaction.keep(batch)
            else:
                transaction.claim(batch)
        self._numbering.begun(batch)
        if not new:
            pass_over(frame)


def exactly_once(
    function: Callable[[DataFrame, int, HandleT], None],
    progress: Progress[HandleT],
    *,
    query: str | None = None,
    target: str = "",
) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that calls `function(batch_df, number, handle)` once per batch.

    What the function writes through `handle`, a database connection with SqlProgress, is committed together with the
    batch's number; if it raises, neither is. It runs with the query's progress locked, and must not commit itself. Of a
    query with state it must use all rows, since Spark takes the state over by that.

    `query` names what progress is kept under, instead of Spark's id of the query. `target` tells apart what several
    functions of one query keep in the same place.
    """
    return ExactlyOnceFunction(function, progress, query, target)
