"""Where a group goes on when large messages lie across the place: at the start of the first of them, and with a note of
what was given before, so that it is not given twice. The note travels as the metadata of the committed offset. Pure.
"""

from __future__ import annotations

from ..records import Committable, OffsetAndMetadata

_NOTE = "ottla-given-before:"


def place(start: int, offset: int) -> OffsetAndMetadata:
    """To begin at `start`, and to give what lies at `offset` and beyond."""
    return OffsetAndMetadata(start, f"{_NOTE}{offset}" if start < offset else "")


def given_before(found: Committable) -> int:
    """The offset before which everything was given: the committed one itself, but for such a note."""
    if isinstance(found, int):
        return found
    number = found.metadata.removeprefix(_NOTE)
    noted = found.metadata.startswith(_NOTE) and number.isascii() and number.isdecimal() and len(number) < 20
    return max(found.offset, int(number)) if noted else found.offset
