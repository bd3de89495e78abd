"""Restarts of mirrored logs at offset 0, which invalidate the offsets committed for the former log. Pure.

A mirror stops a topic whose source was deleted and created again. Once a person accepts that, the copy keeps its topic
id, but its log is cut off and goes on with other records from offset 0. Offsets committed for the former log mean
nothing any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...protocol.cluster.cluster_image import ClusterImage
from ...protocol.cluster.mirror_table import MirrorPartition, ResumptionKind
from ...protocol.cluster.transaction_table import Place
from .committed_offset import CommittedOffset

_NEVER = -1


class LogRestarts:
    """The restarts of copied partitions' logs that this broker has seen in the image. Only the event loop's turn that
    changes the image writes to it."""

    def __init__(self) -> None:
        self._epochs: dict[Place, int] = {}
        """The leader epoch in which the log of each copied partition last began again."""
        self._seen_ms: dict[Place, int] = {}

    def image_changed(
        self, image: ClusterImage, changed: Iterable[Place], removed_topics: Collection[bytes], now_ms: int
    ) -> frozenset[Place]:
        """Update the known restarts from the image; return the copied partitions whose log has begun again at offset
        0."""
        if removed_topics:
            self._epochs = {
                place: epoch for place, epoch in self._epochs.items() if place[0] not in removed_topics
            }
            self._seen_ms = {
                place: ms for place, ms in self._seen_ms.items() if place[0] not in removed_topics
            }
        restarted = set()
        for place in changed:
            copy = image.mirrors.partition(*place)
            if copy is None:
                continue
            before, epoch = self._epochs.get(place), _restart_epoch(copy)
            self._epochs[place] = epoch
            # An old restart that is seen for the first time is not new: the log may have got records and offsets since.
            is_new = not copy.lineage if before is None else epoch > before
            if epoch != _NEVER and is_new:
                restarted.add(place)
                self._seen_ms[place] = now_ms
        return frozenset(restarted)

    def ended(self, place: Place, committed: CommittedOffset) -> bool:
        """Return whether an offset was committed before the log of its partition began again."""
        return committed.commit_time_ms <= self._seen_ms.get(place, _NEVER)


def _restart_epoch(copy: MirrorPartition) -> int:
    resumed = copy.resumption
    if resumed is None or resumed.offset != 0 or resumed.kind is not ResumptionKind.EXACT:
        return _NEVER
    return resumed.leader_epoch
