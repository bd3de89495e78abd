"""The topics that members may subscribe to, by name, id and pattern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Protocol

from ....protocol.cluster.cluster_image import ClusterImage
from .pattern_searches import FOUND_MAX, Later, PatternSearches


class TopicRights(Protocol):
    """Decides which topics clients may describe; `version` rises whenever a decision may have changed."""

    @property
    def version(self) -> int: ...

    def describable(self, principal: str, host: str, topics: Iterable[str]) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class PatternOf:
    """A pattern, and the client whose rights limit its matches.

    The pattern "" matches nothing. The principal "" stands for a client that has not yet sent a heartbeat to this
    coordinator; it matters only if there are rights to check.
    """

    regex: str
    principal: str = ""
    host: str = ""


class TopicCatalog:
    """Topics and their numbers of partitions; `version` rises whenever topics, numbers or rights change.

    Patterns are RE2's and match whole names. `PatternSearches` finds the topics, over several turns of the event loop
    if it takes long. With `rights` a pattern matches only topics that its client may describe. The matches of the
    latest patterns and clients are cached until the catalog changes.
    """

    def __init__(self, rights: TopicRights | None = None, later: Later | None = None) -> None:
        self.ids: dict[str, bytes] = {}
        self.names: dict[bytes, str] = {}
        self.counts: dict[bytes, int] = {}
        self._rights = rights
        self._changes = 0
        self.searches = PatternSearches(self.ids, self._found_more, later)
        self._matches: dict[PatternOf, frozenset[bytes]] = {}
        self._kept = 0
        self._kept_version = 0

    @property
    def version(self) -> int:
        """The version of the catalog. It never falls, since both of its terms only rise."""
        return self._changes + (0 if self._rights is None else self._rights.version)

    def update(self, image: ClusterImage, topic_ids: Iterable[bytes]) -> None:
        """Update topics that may have been created, grown or deleted."""
        changed = False
        for topic_id in topic_ids:
            topic = image.topics_by_id.get(topic_id)
            count = None if topic is None else len(topic.partitions)
            if self.counts.get(topic_id) == count:
                continue
            changed = True
            if topic is None:
                self._forget(topic_id)
                continue
            is_new = topic_id not in self.counts
            self.ids[topic.name], self.names[topic_id] = topic_id, topic.name
            self.counts[topic_id] = len(topic.partitions)
            if is_new:
                self.searches.came(topic.name)
        if changed:
            self._changes += 1
            self.searches.look()

    def _found_more(self) -> None:
        self._changes += 1

    def _forget(self, topic_id: bytes) -> None:
        name = self.names.pop(topic_id)
        del self.counts[topic_id]
        if self.ids.get(name) == topic_id:
            del self.ids[name]
        self.searches.gone(topic_id)

    def resolve(self, names: Iterable[str], pattern: PatternOf) -> frozenset[bytes]:
        """Return ids of the topics that exist among these names, or match the pattern and are not withheld."""
        named = frozenset(self.ids[name] for name in names if name in self.ids)
        return named | self._visible(pattern) if pattern.regex else named

    def withheld(self, pattern: PatternOf) -> frozenset[bytes]:
        """Return ids of the topics that match the pattern, and that its client is known not to be allowed to
        describe."""
        if self._rights is None or not (pattern.regex and pattern.principal):
            return frozenset()
        return self.searches.found(pattern.regex) - self._visible(pattern)

    def awaits_client(self, pattern: PatternOf) -> bool:
        """Return whether the pattern needs a client that is not yet known: it matches nothing so far."""
        return self._rights is not None and bool(pattern.regex) and not pattern.principal

    def is_unresolved(self, pattern: PatternOf) -> bool:
        """Return whether more topics may match the pattern than are known so far."""
        return bool(pattern.regex) and (
            self.awaits_client(pattern) or not self.searches.is_complete(pattern.regex)
        )

    def _visible(self, pattern: PatternOf) -> frozenset[bytes]:
        if self._rights is None:
            return self.searches.found(pattern.regex)
        if not pattern.principal:
            return frozenset()
        found = self._known(pattern)
        if found is None:
            is_complete = self.searches.is_complete(pattern.regex)
            names = (self.names[topic_id] for topic_id in self.searches.found(pattern.regex))
            seen = self._rights.describable(pattern.principal, pattern.host, names)
            found = frozenset(self.ids[name] for name in seen)
            if is_complete:
                self._keep(pattern, found)
        return found

    def _known(self, pattern: PatternOf) -> frozenset[bytes] | None:
        if self._kept_version != self.version:
            self._kept_version, self._kept = self.version, 0
            self._matches.clear()
        return self._matches.get(pattern)

    def _keep(self, pattern: PatternOf, found: frozenset[bytes]) -> None:
        self._matches[pattern] = found
        self._kept += _weight(pattern, found)
        while self._kept > FOUND_MAX:
            oldest = next(iter(self._matches))
            self._kept -= _weight(oldest, self._matches.pop(oldest))

    def fingerprint(self, topic_ids: Iterable[bytes], patterns: Iterable[PatternOf] = ()) -> int:
        """Return a hash of these topics, their numbers of partitions and the topics withheld from the patterns'
        clients.

        The hash is a signed 64-bit number; it is 0 if there are no topics.
        """
        state = blake2b(digest_size=8)
        empty = True
        for topic_id in sorted(topic_ids):
            empty = False
            state.update(topic_id + self.counts[topic_id].to_bytes(4, "big"))
        for pattern in sorted(set(patterns), key=astuple):
            if withheld := self.withheld(pattern):
                empty = False
                state.update(repr(astuple(pattern)).encode())
                state.update(b"".join(sorted(withheld)))
        return 0 if empty else int.from_bytes(state.digest(), "big", signed=True)

    def sizes(self, topic_ids: Iterable[bytes]) -> Mapping[bytes, int]:
        """Return the numbers of partitions of these topics; missing topics are left out."""
        return {topic_id: self.counts[topic_id] for topic_id in topic_ids if topic_id in self.counts}


def _weight(pattern: PatternOf, found: frozenset[bytes]) -> int:
    return len(pattern.regex) + len(pattern.principal) + len(pattern.host) + len(found) + 1
