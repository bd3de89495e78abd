"""The place where a group resumes if large messages lie across its position. Pure.

A reader begins at the start of the first such message, with a note of the records handed out before, which are not
repeated. The note is the metadata of the committed offset.
"""

from __future__ import annotations

from ...records import Committable, OffsetAndMetadata

_NOTE = "ottla-given-before:"


def place(start: int, offset: int) -> OffsetAndMetadata:
    """Return the place that begins at `start`, and from which records from `offset` on are handed out."""
    return OffsetAndMetadata(start, f"{_NOTE}{offset}" if start < offset else "")


def given_before(found: Committable) -> int:
    """Return the offset before which everything was handed out: the noted one, or else the committed offset."""
    if isinstance(found, int):
        return found
    number = found.metadata.removeprefix(_NOTE)
    noted = found.metadata.startswith(_NOTE) and number.isascii() and number.isdecimal() and len(number) < 20
    return max(found.offset, int(number)) if noted else found.offset
