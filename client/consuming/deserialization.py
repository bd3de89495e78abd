"""What was stored, made what the program reads: bytes as they are, or what a deserializer makes of them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..failures import SerializationFailed
from ..records import ConsumerRecord, TopicPartition

Deserializer = Callable[[bytes], Any]
"""Makes something of a key or a value. It is never given None: a record without key, and a tombstone, stay that."""


class Deserialization:
    """Of the records of one consumer."""

    def __init__(
        self, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
    ) -> None:
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer

    def record(self, stored: ConsumerRecord, commit_index: int | None = None) -> ConsumerRecord:
        """Raises SerializationFailed, of the transaction with this index perhaps."""
        return stored._replace(
            key=_made("key", stored, stored.key, self._key_deserializer, commit_index),
            value=_made("value", stored, stored.value, self._value_deserializer, commit_index),
        )


def deserialization(key: Deserializer | None, value: Deserializer | None) -> Deserialization | None:
    """None where there is nothing to do, which then costs nothing."""
    return None if key is None and value is None else Deserialization(key, value)


def _made(
    what: str,
    record: ConsumerRecord,
    stored: bytes | None,
    deserializer: Deserializer | None,
    commit_index: int | None,
) -> Any:
    if stored is None or deserializer is None:
        return stored
    try:
        return deserializer(stored)
    except Exception as error:
        where = TopicPartition(record.topic, record.partition)
        of = "" if commit_index is None else f", in the transaction with commit index {commit_index}"
        raise SerializationFailed(
            f"the {what}_deserializer failed with the record at offset {record.offset} of "
            f"{where.topic}-{where.partition}{of}: {error!r}",
            partition=where,
            offset=record.offset,
            commit_index=commit_index,
        ) from error
