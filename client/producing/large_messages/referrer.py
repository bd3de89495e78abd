"""The replacement of a large value by a reference: the value becomes an object of a store, and is durable before its
record is sent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from ....network.threads import in_thread
from ....protocol.errors import ErrorCode, KafkaError
from ...objects.references import RANDOM_BYTES, REFERENCE_HEADER, ObjectReference, new_key
from ...objects.store import KEY_BYTES_MAX, ObjectStore
from ..pending import PendingRecord, estimated_bytes

UPLOADS_MAX: Final = 16
"""The number of objects that a producer creates at a time."""


class Referrer:
    """A writer of values of more than `reference_bytes`, up to `value_bytes_max`, to an object store."""

    def __init__(
        self,
        store: ObjectStore,
        reference_bytes: int | None,
        value_bytes_max: int,
        record_bytes_max: int,
        clock: Callable[[], float],
    ) -> None:
        """Keep the limits.

        `reference_bytes`: None for the values whose records do not fit into `record_bytes_max`, by estimate. `clock`
        returns seconds since 1970.
        """
        self._store = store
        self._reference_bytes = reference_bytes
        self._value_bytes_max = value_bytes_max
        self._record_bytes_max = record_bytes_max
        self._clock = clock
        self._uploads = asyncio.Semaphore(UPLOADS_MAX)

    def refers(self, record: PendingRecord) -> bool:
        """Return whether a record's value is so large that an object has it."""
        value = record[1]
        if not value:
            return False
        if self._reference_bytes is None:
            return estimated_bytes(record) > self._record_bytes_max
        return len(value) > self._reference_bytes

    def check(self, record: PendingRecord) -> None:
        """Raise MESSAGE_TOO_LARGE if the value, or the record with its reference, is larger than allowed."""
        size = len(record[1] or b"")
        if size > self._value_bytes_max:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the value has {size} bytes, large_message_max_size is {self._value_bytes_max}",
            )
        longest = _referring(record, ObjectReference("x" * KEY_BYTES_MAX, size, bytes(32)))
        if (taken := estimated_bytes(longest)) > self._record_bytes_max:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the reference takes up to {taken} bytes with the record's key and headers, max_request_size is "
                f"{self._record_bytes_max}",
            )

    async def stored(self, topic: str, topic_id: bytes, record: PendingRecord) -> PendingRecord:
        """Create the object of a record's value; return the record with a reference to it, once the object is durable.

        Raises ObjectStoreFailed.
        """
        value = record[1] or b""
        key = new_key(topic, topic_id, self._clock(), os.urandom(RANDOM_BYTES))
        async with self._uploads:
            reference = await in_thread(ObjectReference.to, key, value)
            await self._store.put_new(key, value)
        return _referring(record, reference)


def _referring(record: PendingRecord, reference: ObjectReference) -> PendingRecord:
    key, _, timestamp_ms, headers = record
    return key, reference.encoded(), timestamp_ms, ((REFERENCE_HEADER, b""), *headers)
