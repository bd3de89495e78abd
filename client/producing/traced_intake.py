"""The conversion of a caller's records with traces: each record gets the context in which it was created."""

from __future__ import annotations

from collections.abc import Iterable

from ..tracing.spans import Creation
from .pending import PendingRecord
from .serialization import Intake, Serializer


class TracedIntake(Intake):
    """A converter that adds the trace context to the headers of each record."""

    __slots__ = ("_creation",)

    def __init__(
        self, key_serializer: Serializer | None, value_serializer: Serializer | None, creation: Creation
    ) -> None:
        super().__init__(key_serializer, value_serializer)
        self._creation = creation

    @property
    def takes_bytes(self) -> bool:
        """False, since no record is sent as it was given."""
        return False

    def record(
        self,
        topic: str,
        key: object,
        value: object,
        timestamp_ms: int,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> PendingRecord:
        """Return a record with a trace context. Raises the errors of `Intake.record`."""
        return super().record(topic, key, value, timestamp_ms, self._creation.headers(topic, headers))
