"""The shortest way of a record into a batch: what `send` does for most records, and nothing else.

A record that needs nothing but a place takes this way: bytes for a topic that is known, and its partition has a batch
that is open, that is, waits to be sent and is not full. Whatever else a record may need (a new batch, room in the
buffer, serializers, headers to check, an error to be told of) is the long way's business, in `record_writer`, to which
`append` leaves it by returning None: then it has done nothing.

It is written twice, in Python and in C, with the same results; the latter is used where it could be built, unless the
environment variable OTTLA_PURE_PYTHON=1 turns that down.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from .appending_in_python import (
    BATCH_OVERHEAD,
    RECORD_OVERHEAD,
    TURN_RECORDS,
    Appender,
    DeliveryFields,
    PendingRecord,
    RecordBuffer,
    TopicBatches,
)

if not TYPE_CHECKING and os.environ.get("OTTLA_PURE_PYTHON") != "1":
    with suppress(ImportError):
        from ._appending import Appender, DeliveryFields, RecordBuffer, TopicBatches

__all__ = [
    "BATCH_OVERHEAD",
    "RECORD_OVERHEAD",
    "TURN_RECORDS",
    "Appender",
    "DeliveryFields",
    "PendingRecord",
    "RecordBuffer",
    "TopicBatches",
]
