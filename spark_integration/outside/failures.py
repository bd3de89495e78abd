"""Errors of writes to outside systems. Each ends the query with its message; a restart continues from there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class OutsideError(RuntimeError):
    """An error: a batch was not written. No row of it counts, unless the message says that the outcome is unknown."""


class QueryReplaced(OutsideError):
    """An error of a replaced run: another run of the query, or another query with its name, writes now."""


class BatchRefused(OutsideError):
    """An error of a batch whose columns or rows do not fit the target."""


@contextmanager
def placed(batch: object, where: str) -> Iterator[None]:
    """Return a context manager that adds the batch and its target, `where`, to the message of every OutsideError."""
    try:
        yield
    except OutsideError as error:
        if str(batch) in str(error):
            raise
        raise type(error)(f"{batch}, {where}: {error}") from error
