"""The shortest way of a record into a batch: what `send` does for most records, and nothing else.

A record that needs nothing but a place takes this way: bytes for a topic that is known, and its partition has a batch
that is open, that is, waits to be sent and is not full. Whatever else a record may need (a new batch, room in the
buffer, serializers, headers to check, an error to be told of) is the long way's business, in `record_writer`, to which
`append` leaves it by returning None: then it has done nothing.

It is written twice, in Python and in C, with the same results; the latter is used where it could be built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.pure_python import PURE_PYTHON
from .appending_in_python import TURN_RECORDS

if TYPE_CHECKING:
    from . import appending_in_python as _chosen
else:
    try:
        if PURE_PYTHON:
            raise ImportError("what is written in C is turned down")
        from . import _appending as _chosen
    except ImportError:  # or not built, or built for another Python
        from . import appending_in_python as _chosen

FOR_ALL_THREADS: Final = not _chosen.__name__.endswith(".appending_in_python")
"""Whether other threads than the loop's may `append`: what C does is done before another thread has its turn."""
Appender = _chosen.Appender
DeliveryFields = _chosen.DeliveryFields
RecordBuffer = _chosen.RecordBuffer
ResultFields = _chosen.ResultFields
TopicBatches = _chosen.TopicBatches

__all__ = [
    "FOR_ALL_THREADS",
    "TURN_RECORDS",
    "Appender",
    "DeliveryFields",
    "RecordBuffer",
    "ResultFields",
    "TopicBatches",
]
