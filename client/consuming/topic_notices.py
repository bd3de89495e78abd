"""Reports on topics that a consumer wants and cannot read: reads raise for denied topics, the log warns of missing
ones.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from math import inf
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..connections.cluster import Cluster

ABSENT_S: Final = 1.0
"""The delay of the warning, since a broker may not know a topic that was created a moment ago."""
DENIED_AGAIN_S: Final = 5.0
"""The interval at which the cluster is asked whether a denied topic may be seen by now."""

logger = logging.getLogger(__name__)


class TopicNotices:
    """A finder of topics that a consumer wants and that are denied or missing in the cluster's metadata."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._absent_s: dict[str, float] = {}
        """The time at which each missing topic was first found missing; infinity after its warning."""

    def look(self, topics: Collection[str], now_s: float) -> KafkaError | None:
        """Return the error for the topics that the user may not see, None if there are no such topics.

        Logs one warning about each topic that has been missing for ABSENT_S.
        """
        known = self._cluster.metadata.topics
        for topic in [absent for absent in self._absent_s if absent not in known]:
            del self._absent_s[topic]  # The metadata forgot it: no part of the client wants it any more.
        for topic in topics:
            if topic in known and known[topic].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._is_absent(topic, now_s)
            else:
                self._absent_s.pop(topic, None)
        denied = self.denied(topics)
        if not denied:
            return None
        where = f"{len(denied)} topics, {', '.join(map(repr, denied))}" if denied[1:] else ""
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self._cluster.failure(code, where, operation="DESCRIBE", name=denied[0])

    def denied(self, topics: Iterable[str]) -> list[str]:
        """Return the topics of these that the user may not see, in order."""
        known = self._cluster.metadata.topics
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return sorted(topic for topic in topics if topic in known and known[topic].error is code)

    def wait_s(self, topics: Collection[str], at_most_s: float) -> float:
        """Return the seconds until these topics need another `look`."""
        if any(self._absent_s.get(topic, inf) < inf for topic in topics):
            return min(at_most_s, ABSENT_S)
        return min(at_most_s, DENIED_AGAIN_S) if self.denied(topics) else at_most_s

    def _is_absent(self, topic: str, now_s: float) -> None:
        since_s = self._absent_s.setdefault(topic, now_s)
        if now_s - since_s >= ABSENT_S:
            self._absent_s[topic] = inf
            logger.warning("there is no topic %r: it is read once it exists", topic)
