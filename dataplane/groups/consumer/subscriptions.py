"""What members may subscribe to: the topics there are, by name, id and pattern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Protocol

from ....protocol.cluster_image import ClusterImage
from ...patterns import compile_pattern

PATTERN_NAME = "SubscribedTopicRegex"
"""What a pattern of topics is called in errors."""
_MATCHES_MAX = 1_000_000
"""How many topics, and characters of patterns, are kept as found: some 60 MB at most."""


class TopicRights(Protocol):
    """Decides which topics clients may describe; `version` rises whenever it may decide otherwise."""

    @property
    def version(self) -> int: ...

    def describable(self, principal: str, host: str, topics: Iterable[str]) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class PatternOf:
    """A pattern, and the client whose rights it is resolved by. The pattern "" matches nothing. The principal "" is
    a client of which the coordinator has not heard; without rights to go by it does not matter."""

    regex: str
    principal: str = ""
    host: str = ""


class TopicCatalog:
    """Topics and their numbers of partitions; `version` rises whenever one of these or the rights change.

    Patterns are RE2's, whose matching takes time linear in the name whatever the pattern; they match whole
    names. With `rights` a pattern matches only what its client may describe. What the latest patterns match is
    kept until the catalog changes.
    """

    def __init__(self, rights: TopicRights | None = None) -> None:
        self.ids: dict[str, bytes] = {}
        self.names: dict[bytes, str] = {}
        self.counts: dict[bytes, int] = {}
        self._rights = rights
        self._changes = 0
        self._matches: dict[PatternOf, frozenset[bytes]] = {}
        self._kept = 0
        self._kept_version = 0

    @property
    def version(self) -> int:
        """Both terms only rise."""
        return self._changes + (0 if self._rights is None else self._rights.version)

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
            self._changes += 1

    def _forget(self, topic_id: bytes) -> None:
        name = self.names.pop(topic_id)
        del self.counts[topic_id]
        if self.ids.get(name) == topic_id:
            del self.ids[name]

    def resolve(self, names: Iterable[str], pattern: PatternOf) -> frozenset[bytes]:
        """Ids of the topics that exist among these names, or match the pattern and are not withheld."""
        named = frozenset(self.ids[name] for name in names if name in self.ids)
        return named | self._visible(pattern) if pattern.regex else named

    def withheld(self, pattern: PatternOf) -> frozenset[bytes]:
        """Ids of the topics that match the pattern, and that its client is known not to be allowed to describe."""
        if self._rights is None or not (pattern.regex and pattern.principal):
            return frozenset()
        return self._matching(pattern.regex) - self._visible(pattern)

    def awaits_client(self, pattern: PatternOf) -> bool:
        """Whether the client has to be known for the pattern to be resolved, and is not: it matches nothing so far."""
        return self._rights is not None and bool(pattern.regex) and not pattern.principal

    def _visible(self, pattern: PatternOf) -> frozenset[bytes]:
        if self._rights is None:
            return self._matching(pattern.regex)
        if not pattern.principal:
            return frozenset()
        found = self._known(pattern)
        if found is None:
            names = (self.names[topic_id] for topic_id in self._matching(pattern.regex))
            seen = self._rights.describable(pattern.principal, pattern.host, names)
            found = self._keep(pattern, frozenset(self.ids[name] for name in seen))
        return found

    def _matching(self, regex: str) -> frozenset[bytes]:
        everybodys = PatternOf(regex)
        found = self._known(everybodys)
        if found is None:
            compiled = compile_pattern(regex, PATTERN_NAME)
            ids = (topic_id for name, topic_id in self.ids.items() if compiled.fullmatch(name))
            found = self._keep(everybodys, frozenset(ids))
        return found

    def _known(self, pattern: PatternOf) -> frozenset[bytes] | None:
        if self._kept_version != self.version:
            self._kept_version, self._kept = self.version, 0
            self._matches.clear()
        return self._matches.get(pattern)

    def _keep(self, pattern: PatternOf, found: frozenset[bytes]) -> frozenset[bytes]:
        self._matches[pattern] = found
        self._kept += _weight(pattern, found)
        while self._kept > _MATCHES_MAX:
            oldest = next(iter(self._matches))
            self._kept -= _weight(oldest, self._matches.pop(oldest))
        return found

    def fingerprint(self, topic_ids: Iterable[bytes], patterns: Iterable[PatternOf] = ()) -> int:
        """A signed 64-bit number that stands for these topics, their numbers of partitions and what is withheld
        from the patterns' clients; 0 for none."""
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
        """Numbers of partitions of these topics, as far as they exist."""
        return {topic_id: self.counts[topic_id] for topic_id in topic_ids if topic_id in self.counts}


def _weight(pattern: PatternOf, found: frozenset[bytes]) -> int:
    return len(pattern.regex) + len(pattern.principal) + len(pattern.host) + len(found) + 1
