"""What writing to outside systems can fail with. Each ends the query with its message; a restart goes on from there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class OutsideError(RuntimeError):
    """A batch was not written: nothing of it counts, unless the message says that this is not known."""


class QueryReplaced(OutsideError):
    """Another run of the query has taken over, or another query uses its name: this one must not write any more."""


class BatchRefused(OutsideError):
    """The batch's columns or rows do not fit what they are written to."""


@contextmanager
def placed(batch: object, where: str) -> Iterator[None]:
    """Every OutsideError names the batch, and where it was to be written."""
    try:
        yield
    except OutsideError as error:
        if str(batch) in str(error):
            raise
        raise type(error)(f"{batch}, {where}: {error}") from error
