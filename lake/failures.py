"""Failures of the lake that need a person, or another worker, to end them."""

from __future__ import annotations


class TableRefused(Exception):
    """A table cannot be written without a decision of a person. The message says what is wrong and what helps."""


class WorkerFenced(Exception):
    """Another worker writes the table since; this worker may not write to it any more."""
