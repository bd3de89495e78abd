"""The traces of a worker: a span for each attempt with a record, and the records that the attempt creates."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ..records import ConsumerRecord
from .spans import Creation, Handling


class AttemptTraces:
    """The makers of a worker's spans."""

    def __init__(self, client_id: str, group_id: str) -> None:
        self.creation = Creation(client_id)
        """The maker of the spans in which handlers create records."""
        self._handling = Handling(client_id, group_id)

    def span(self, record: ConsumerRecord, attempt: int) -> AbstractContextManager[object]:
        """Work on a record in a block, which is the span of one attempt. An exception is noted, and propagates."""
        return self._handling.span(record, attempt)
