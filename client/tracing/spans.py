"""The spans of records: a short span in which a record is created, and a span in which it is handled.

Names and attributes are those of OpenTelemetry's semantic conventions for messaging and for Kafka. The span of a
handler has a link to the context in which the record was created, and no parent there: a trace of a batch would else
belong to one of its records. The context travels in the headers `traceparent` and `tracestate` (W3C Trace Context).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from typing import Any, Final

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from ..error_names import error_type
from ..records import ConsumerRecord
from .iteration import TracedLoop, TracedRecords

TRACE_PARENT: Final = "traceparent"
TRACE_STATE: Final = "tracestate"
ATTEMPT: Final = "ottla.worker.attempt"
"""The attribute with the number of an attempt, for which the conventions for Kafka have no name."""
_VALUE_BYTES_MAX: Final = 1_024
"""The longest header that is read as a context. W3C asks for at least 512 characters of a state."""
_KEY_BYTES_MAX: Final = 256
"""The longest key that becomes an attribute."""
_TRACER: Final = "ottla"
_PROPAGATOR: Final = TraceContextTextMapPropagator()

Headers = Sequence[tuple[str, bytes | None]]


class Creation:
    """The maker of the spans in which a producer creates records."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._tracer = trace.get_tracer(_TRACER)

    def headers(self, topic: str, given: Iterable[tuple[str, bytes | None]]) -> Headers:
        """Return a record's headers with the context of a span that creates it.

        Headers with a context stay as they are: the record was created in that context, and is passed on.
        """
        headers = list(given)
        if any(_has_name(header, TRACE_PARENT) for header in headers):
            return headers
        attributes = _attributes("create", topic, self._client_id)
        with self._tracer.start_as_current_span(
            f"create {topic}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            carrier = self.carried()
        return [*headers, *((name, value.encode()) for name, value in carrier.items())]

    def carried(self) -> dict[str, str]:
        """Return the current context in the form of the headers, for another process."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier

    @contextmanager
    def continued(self, carrier: Mapping[str, str]) -> Iterator[None]:
        """Make a context that another process has carried here the current context of a block."""
        token = context.attach(_PROPAGATOR.extract(carrier, Context()))
        try:
            yield
        finally:
            context.detach(token)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts for another process, which has tracers of its own."""
        return Creation, (self._client_id,)


class Handling:
    """The maker of the spans in which a program handles the records of a consumer."""

    def __init__(self, client_id: str, group_id: str | None) -> None:
        self._client_id = client_id
        self._group_id = group_id
        self._tracer = trace.get_tracer(_TRACER)

    @contextmanager
    def span(self, record: ConsumerRecord, attempt: int | None = None) -> Iterator[Span]:
        """Handle a record in a block, which is the span. An exception of the block is noted, and propagates.

        `attempt` is the number of the attempt with this record, if attempts are counted.
        """
        span = self.begun(record)
        if attempt is not None:
            span.set_attribute(ATTEMPT, attempt)
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield span
            except BaseException as error:
                failed(span, error)
                raise

    def begun(self, record: ConsumerRecord) -> Span:
        """Begin the span of a record, which the caller ends."""
        created = trace.get_current_span(_created_in(record)).get_span_context()
        return self._tracer.start_span(
            f"process {record.topic}",
            kind=SpanKind.CONSUMER,
            links=[Link(created)] if created.is_valid else [],
            attributes=self._told(record),
        )

    def in_hand(self) -> SpanInHand:
        """Return the spans of a loop over records."""
        return SpanInHand(self)

    def records(self, read: Callable[[], Awaitable[ConsumerRecord]]) -> TracedRecords:
        """Return the records that `read` returns for `async for`, each handled in its span."""
        return TracedRecords(self.in_hand(), read)

    def loop(self, read: Callable[[], ConsumerRecord]) -> TracedLoop:
        """Return the records that `read` returns for a plain `for`, each handled in its span."""
        return TracedLoop(self.in_hand(), read)

    def _told(self, record: ConsumerRecord) -> dict[str, AttributeValue]:
        attributes = _attributes("process", record.topic, self._client_id)
        attributes["messaging.destination.partition.id"] = str(record.partition)
        attributes["messaging.kafka.offset"] = record.offset
        if self._group_id is not None:
            attributes["messaging.consumer.group.name"] = self._group_id
        if isinstance(record.key, bytes) and len(record.key) <= _KEY_BYTES_MAX:
            attributes["messaging.kafka.message.key"] = record.key.decode("utf-8", "backslashreplace")
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        return attributes


class SpanInHand:
    """The current span of a loop over records: it begins with a record, and ends with the next record."""

    def __init__(self, handling: Handling) -> None:
        self._handling = handling
        self._span: Span | None = None
        self._token: Token[Context] | None = None
        self._begun_by: object = None

    def begin(self, record: ConsumerRecord) -> None:
        """Begin the span of a record, and make it the current span of the caller."""
        self._span = self._handling.begun(record)
        self._token = context.attach(trace.set_span_in_context(self._span))
        self._begun_by = _caller()

    def end(self, error: BaseException | None = None) -> None:
        """End the span of the last record, if there is one. `error` is the exception that ended its handling."""
        span, self._span = self._span, None
        token, self._token = self._token, None
        if span is None:
            return
        if (
            token is not None and self._begun_by == _caller()
        ):  # Another task cannot restore the context of the loop.
            context.detach(token)
        self._begun_by = None
        if error is not None:
            failed(span, error)
        span.end()


def _caller() -> object:
    """Return the task that runs, or without an event loop the number of the thread."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return threading.get_ident()


def failed(span: Span, error: BaseException) -> None:
    """Note in a span that the handling of its record has failed."""
    name = error_type(error)
    try:
        span.record_exception(error)
    except Exception:  # The exception fails to make its text.
        span.add_event("exception", {"exception.type": name})
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, name))


def _attributes(operation: str, topic: str, client_id: str) -> dict[str, AttributeValue]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
        "messaging.client.id": client_id,
    }


def _created_in(record: ConsumerRecord) -> Context:
    """Return the context in a record's headers; an empty context if they have none that is valid."""
    carrier = {
        name: value.decode("ascii", "replace")
        for name, value in record.headers
        if name in (TRACE_PARENT, TRACE_STATE) and value is not None and len(value) <= _VALUE_BYTES_MAX
    }
    return _PROPAGATOR.extract(carrier, Context())


def _has_name(header: object, name: str) -> bool:
    """Return whether a header that a program gave has this name. A malformed header is refused later."""
    return isinstance(header, tuple | list) and len(header) > 0 and header[0] == name
