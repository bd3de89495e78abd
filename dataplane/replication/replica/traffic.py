"""Counts of the data that clients wrote to a partition and read from it since this broker started."""

from __future__ import annotations


class Traffic:
    """Counters of one partition: records and bytes written by clients, and bytes read by them. A broker adds to them
    once per batch and per answer, never per record.
    """

    __slots__ = ("bytes_in", "bytes_out", "messages_in")

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = 0
