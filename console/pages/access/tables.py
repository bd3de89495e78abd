"""Tables of the page "Security": each is sorted and split into pages apart from the others."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ....protocol.errors import ErrorCode, KafkaError
from ...area import Paged, Visit
from ...sorting import Column, Sorted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TableAnswer(Generic[T]):
    """The rows that the cluster reported, or none and the reason `trouble` why they are missing.

    `has_no_authorizer` is True if the reason is that the cluster has no authorizer.
    """

    rows: Sequence[T]
    trouble: str = ""
    has_no_authorizer: bool = False


@dataclass(frozen=True, slots=True)
class AccessTable(Generic[T]):
    """A table of the page: all its rows in order, the rows on this page, and `trouble` as in `TableAnswer`."""

    sorted: Sorted[T]
    paged: Paged[T]
    trouble: str


async def answered(question: Awaitable[Sequence[T]]) -> TableAnswer[T]:
    """Return the answer of the cluster. A refusal becomes `trouble`, so that the page's other tables are shown."""
    try:
        return TableAnswer(await question)
    except KafkaError as error:
        return TableAnswer((), error.message, error.code == ErrorCode.SECURITY_DISABLED)


def access_table(
    visit: Visit, name: str, rows: Sequence[T], columns: Sequence[Column[T]], trouble: str
) -> AccessTable[T]:
    """Sort the rows of a table by the query parameter `NAME-sort`, by default by the first column.

    `name` is also the id of the table's heading; the query parameter `NAME-page` counts its pages. Raises BadQuestion.
    """
    ordered = visit.sorted(
        rows, columns, columns[0].name, parameter=f"{name}-sort", page=f"{name}-page", at=name
    )
    return AccessTable(ordered, visit.paged(ordered.rows, parameter=f"{name}-page"), trouble)
