"""Tables of records as the page of messages shows them, without a cluster that keeps records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.client.records import ConsumerRecord
from ottla.console.area import Visit
from ottla.console.pages.messages.page import MessagesPage, message_row
from ottla.console.pages.messages.question import question_of
from ottla.console.rendering import Templates


def visit_of(may_change: bool = False, form: dict[str, str] | None = None, **query: str) -> Visit:
    nobody: Any = None
    return Visit(
        admin=nobody,
        sampler=nobody,
        readings=nobody,
        connection={},
        may_change=may_change,
        path="/messages",
        query={name.rstrip("_"): value for name, value in query.items()},
        form=form or {},
    )


def record(
    value: bytes | None, key: bytes | None = None, headers: Sequence[Any] = (), *, offset: int = 7
) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 1_000, key, value, tuple(headers))


def table_of(*records: ConsumerRecord, may_change: bool = False, **query: str) -> str:
    """Return the table of these records, as a search with this query shows them."""
    visit = visit_of(may_change, topic="t", **query)
    question = question_of(visit)
    rows = [message_row(record, question.shows_as, "") for record in records]
    model = MessagesPage(topics=(), question=question, where=(), formats=(), rows=rows, scanned=len(rows))
    return Templates().fragments("messages.html", {"visit": visit, "model": model})["live_messages"]
