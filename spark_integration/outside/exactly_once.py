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
    """An open transaction of the outside system, in which the progress of the query is locked."""

    @property
    def handle(self) -> HandleT_co:
        """The object, such as a database connection, through which the user's function writes."""

    @property
    def kept(self) -> Kept | None:
        """The query's stored progress; None before its first batch."""

    def keep(self, batch: Batch) -> None:
        """Record, in this transaction, that the batch is committed."""

    def claim(self, batch: Batch) -> None:
        """Record, in this transaction, that the batch's run is the current writer and replaces older runs."""


class Progress(Protocol[HandleT_co]):
    """A store of the last committed batch number of each query, in the same system as the data."""

    def transaction(self, name: str, target: str) -> AbstractContextManager[OutsideTransaction[HandleT_co]]:
        """Open a transaction that locks the progress of this query and target. Commit it, or roll it back on an
        error.
        """


class ExactlyOnceFunction(Generic[HandleT]):
    """A function for `foreachBatch`, made by `exactly_once`: it calls the user's function once per batch, in a
    transaction that also stores the batch's number."""

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
        """Write a batch unless it is already committed. Raises OutsideError, and all exceptions of the function."""
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
    """Return a function for `foreachBatch` that calls `function(batch_df, number, handle)` once per batch.

    `handle` is a database connection in the case of SqlProgress. All writes through it are committed together with the
    batch's number; if the function raises, both are rolled back. The function runs with the query's progress locked,
    and must not commit. For a query with state it must read all rows, since Spark carries the state over as rows are
    read.

    `query` names the stored progress; the default is Spark's id of the query. `target` distinguishes several functions
    of a query that store progress in the same place.
    """
    return ExactlyOnceFunction(function, progress, query, target)
