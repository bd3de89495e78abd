"""The objects of a topic that a sweep may delete, by their age. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....client.objects.references import day_end_ms, folder_of
from ....client.objects.store import StoredObject


@dataclass(slots=True)
class TopicObjects:
    """The objects of a topic's name in a store."""

    topic: str
    topic_id: bytes | None
    """The id of the topic; None if no topic has the name now."""
    cutoff_ms: int
    """The time in ms since 1970 before which an object must have been created to be deleted."""
    objects: int = 0
    object_bytes: int = 0
    old: dict[str, int] = field(default_factory=dict)
    """The sizes of the topic's old objects by key. Those that a record refers to are removed from it."""
    earlier: dict[str, int] = field(default_factory=dict)
    """The sizes of the old objects of deleted topics with this name."""
    referenced: int = 0
    """The number of old objects to which records refer."""

    def add(self, found: StoredObject) -> None:
        """Count an object, and note whether it is old by its day and by the store's clock."""
        self.objects += 1
        self.object_bytes += found.size
        ended_ms = day_end_ms(found.key)
        if ended_ms is None or max(ended_ms, found.modified_ms) > self.cutoff_ms:
            return
        is_own = self.topic_id is not None and found.key.startswith(folder_of(self.topic, self.topic_id))
        (self.old if is_own else self.earlier)[found.key] = found.size

    def refer(self, key: str) -> None:
        """Note that a record refers to an object, which is kept for it."""
        if self.old.pop(key, None) is not None or self.earlier.pop(key, None) is not None:
            self.referenced += 1

    def deleted(self, *, earlier_topics: bool) -> dict[str, int]:
        """Return the sizes of the objects to delete, by key."""
        return self.old | (self.earlier if earlier_topics else {})


def cutoff_ms(configs: Mapping[str, str | None], older_than_ms: int) -> int:
    """Return the time before which an object of a topic with these configs must have been created to be deleted.

    `older_than_ms`: the time that the user has chosen, in ms since 1970. Records that no retention deletes may be
    replaced or deleted at any time, so the chosen time decides alone.
    """
    retention_ms = int(configs.get("retention.ms") or -1)
    expires = "delete" in (configs.get("cleanup.policy") or "") and retention_ms >= 0
    return older_than_ms - (retention_ms if expires else 0)
