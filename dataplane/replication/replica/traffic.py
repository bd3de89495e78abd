"""What clients wrote to a partition and read from it, counted since this broker started."""

from __future__ import annotations


class Traffic:
    """Plain counters: a broker adds to them once per batch and per answer, never per record."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = 0
