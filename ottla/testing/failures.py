"""What goes wrong with a local cluster."""

from __future__ import annotations


class LocalClusterError(RuntimeError):
    """A local cluster, or a node of it, did not do what was asked; the message ends with what it said last."""
