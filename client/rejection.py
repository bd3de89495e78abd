"""The exception with which handlers and tasks give a record up for good. Pure."""

from __future__ import annotations


class Reject(Exception):
    """An exception for a record that no further attempt can save: `raise Reject("empty")`.

    In the handler of a Worker the record becomes a dead letter at once, or stops the worker if there is no topic for
    dead letters. In the block of a ShareTask the record is rejected: it is not delivered again, and becomes a dead
    letter if the share group has a topic for them.
    """
