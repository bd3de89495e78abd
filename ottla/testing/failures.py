"""The error that a local cluster for tests raises."""

from __future__ import annotations


class LocalClusterError(RuntimeError):
    """A failure of a local cluster or one of its nodes. The message ends with the last lines of its log."""
