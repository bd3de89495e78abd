"""What the quorum's leader is told of the broker's logs: where they end, each time that is news."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...protocol.messages.quorum_session import PartitionProgress

Progress = tuple[tuple[bytes, int], int, int]
"""(topic id and partition, leader epoch of the last record, log end offset) of one log."""


class ToldProgress:
    """The logs as the present leader was told of them last."""

    def __init__(self, progress: Callable[[], Iterable[Progress]]) -> None:
        self._progress = progress
        self._told: dict[tuple[bytes, int], tuple[int, int]] = {}

    def clear(self) -> None:
        """Another node leads: it is told everything."""
        self._told.clear()

    def news(self) -> list[PartitionProgress]:
        """The logs that moved since. They are looked at one by one: for a list of thousands, twice a second, the
        garbage collector would look through all that the broker has, again and again."""
        told = self._told
        news: list[PartitionProgress] = []
        present = 0
        for key, leader_epoch, log_end_offset in self._progress():
            present += 1
            if told.get(key) != (leader_epoch, log_end_offset):
                told[key] = (leader_epoch, log_end_offset)
                topic_id, partition = key
                news.append(
                    PartitionProgress(
                        topic_id=topic_id,
                        partition=partition,
                        leader_epoch=leader_epoch,
                        log_end_offset=log_end_offset,
                    )
                )
        if len(told) > present:
            kept = {key for key, _, _ in self._progress()}
            self._told = {key: end for key, end in told.items() if key in kept}
        return news
