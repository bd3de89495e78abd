"""The fast path of a record into a batch: the work that `send` does for most records, and no more.

This path accepts only a record of bytes, for a known topic, whose partition has an open batch, that is, one that waits
to be sent and is not full. All other work (a new batch, room in the buffer, serializers, headers to check, errors to
raise) is done by the slow path in `record_writer`. `append` selects it by returning None without having changed
anything.

There are two implementations with the same results, in Python and in C; the latter is used if it could be built.
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
"""True if threads other than the loop's may call `append`: the C code runs without a switch to another thread."""
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
