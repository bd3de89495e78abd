"""What members may subscribe to: the topics there are, by name, id and pattern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from ....protocol.cluster_image import ClusterImage
from ...patterns import compile_pattern

PATTERN_NAME = "SubscribedTopicRegex"
"""What a pattern of topics is called in errors."""
_MATCHES_MAX = 1_000_000
"""How many topics, and characters of patterns, are kept as found: some 60 MB at most."""


class TopicCatalog:
    """Topics and their numbers of partitions; `version` rises whenever one of these changes.

    Patterns are RE2's, whose matching takes time linear in the name whatever the pattern; they match whole
    names. What the latest patterns match is kept until the catalog changes.
    """

    def __init__(self) -> None:
        self.version = 0
        self.ids: dict[str, bytes] = {}
        self.names: dict[bytes, str] = {}
        self.counts: dict[bytes, int] = {}
        self._matches: dict[str, frozenset[bytes]] = {}
        self._kept = 0

    def update(self, image: ClusterImage, topic_ids: Iterable[bytes]) -> None:
        """Look at topics again that may have come, grown or gone."""
        changed = False
        for topic_id in topic_ids:
            topic = image.topics_by_id.get(topic_id)
            count = None if topic is None else len(topic.partitions)
            if self.counts.get(topic_id) == count:
                continue
            changed = True
            if topic is None:
                self._forget(topic_id)
            else:
                self.ids[topic.name], self.names[topic_id] = topic_id, topic.name
                self.counts[topic_id] = len(topic.partitions)
        if changed:
            self.version += 1
            self._matches.clear()
            self._kept = 0

    def _forget(self, topic_id: bytes) -> None:
        name = self.names.pop(topic_id)
        del self.counts[topic_id]
        if self.ids.get(name) == topic_id:
            del self.ids[name]

    def resolve(self, names: Iterable[str], regex: str) -> frozenset[bytes]:
        """Ids of the topics that exist among these names or match the pattern ("" matches none)."""
        named = frozenset(self.ids[name] for name in names if name in self.ids)
        return named | self._matching(regex) if regex else named

    def _matching(self, regex: str) -> frozenset[bytes]:
        found = self._matches.get(regex)
        if found is None:
            pattern = compile_pattern(regex, PATTERN_NAME)
            found = frozenset(topic_id for name, topic_id in self.ids.items() if pattern.fullmatch(name))
            self._keep(regex, found)
        return found

    def _keep(self, regex: str, found: frozenset[bytes]) -> None:
        self._matches[regex] = found
        self._kept += _weight(regex, found)
        while self._kept > _MATCHES_MAX:
            oldest = next(iter(self._matches))
            self._kept -= _weight(oldest, self._matches.pop(oldest))

    def fingerprint(self, topic_ids: Iterable[bytes]) -> int:
        """A signed 64-bit number that stands for these topics and their numbers of partitions; 0 for none."""
        state = blake2b(digest_size=8)
        empty = True
        for topic_id in sorted(topic_ids):
            empty = False
            state.update(topic_id + self.counts[topic_id].to_bytes(4, "big"))
        return 0 if empty else int.from_bytes(state.digest(), "big", signed=True)

    def sizes(self, topic_ids: Iterable[bytes]) -> Mapping[bytes, int]:
        """Numbers of partitions of these topics, as far as they exist."""
        return {topic_id: self.counts[topic_id] for topic_id in topic_ids if topic_id in self.counts}


def _weight(regex: str, found: frozenset[bytes]) -> int:
    return len(regex) + len(found) + 1
