"""Deserialization of stored records: keys and values stay bytes, or a deserializer converts them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..failures import SerializationFailed
from ..records import ConsumerRecord, TopicPartition

Deserializer = Callable[[bytes], Any]
"""A function from the bytes of a key or value to an object. It never gets None: a missing key and a tombstone stay
None.
"""


class Deserialization:
    """The deserializers of one consumer, which convert the bytes of keys and values."""

    def __init__(
        self, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
    ) -> None:
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer

    def record(self, stored: ConsumerRecord, commit_index: int | None = None) -> ConsumerRecord:
        """Return the record with key and value deserialized.

        Raises SerializationFailed, which names the transaction if `commit_index` is given.
        """
        return stored._replace(
            key=_made("key", stored, stored.key, self._key_deserializer, commit_index),
            value=_made("value", stored, stored.value, self._value_deserializer, commit_index),
        )


def deserialization(key: Deserializer | None, value: Deserializer | None) -> Deserialization | None:
    """Return the deserialization, None without deserializers, so that they cost nothing then."""
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
