"""The topics that a client asks its cluster about, and the time after which it forgets a topic.

Pure: the caller passes the time.

    held    by a part of the client, such as a consumer's subscription: each refresh asks about them until their release
    used    by name, as in `send`: each refresh asks about them for `idle_s` after the last use
    asked   once, as for `end_offsets`: known for `idle_s`, and no refresh asks about them

A producer that asked about a deleted topic for ever would make brokers create it again and again (KAFKA-2948).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Set
from math import inf


class FollowedTopics:
    """The topics whose metadata one client requests or keeps. Times are seconds of a monotonic clock."""

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self._held: dict[Hashable, frozenset[str]] = {}
        self._used_s: dict[str, float] = {}
        self._asked_s: dict[str, float] = {}

    def hold(self, holder: Hashable, topics: Iterable[str]) -> None:
        """Set the topics whose metadata refreshes request for `holder`; without topics, none."""
        before = self._held.pop(holder, frozenset())
        held = frozenset(topics)
        if held:
            self._held[holder] = held
        self._leave(before - held)

    def use(self, topics: Iterable[str], now_s: float) -> None:
        """Request the metadata of these topics at each refresh, for `idle_s` seconds from now on."""
        self._used_s.update(dict.fromkeys(topics, now_s))

    def ask(self, topics: Iterable[str], now_s: float) -> None:
        """Keep the metadata of these topics, which is requested once, for at least `idle_s` seconds."""
        self._asked_s.update(dict.fromkeys(topics, now_s))

    def drop(self, topics: Iterable[str]) -> None:
        """Stop refreshing topics that `use` has followed; topics of a holder are still refreshed."""
        self._leave([topic for topic in topics if self._used_s.pop(topic, None) is not None])

    def __len__(self) -> int:
        return len(self.all())

    def all(self) -> set[str]:
        """Return the topics whose metadata a refresh requests."""
        return set(self._used_s).union(*self._held.values())

    def forget(self, now_s: float, in_use: Set[str]) -> set[str]:
        """Forget topics whose last use is `idle_s` ago, unless still `in_use`; return the topics whose metadata is
        kept.
        """
        due_s = now_s - self.idle_s
        self.drop(
            [topic for topic, used_s in self._used_s.items() if used_s <= due_s and topic not in in_use]
        )
        self._asked_s = {
            topic: asked_s for topic, asked_s in self._asked_s.items() if asked_s > due_s or topic in in_use
        }
        return self.all() | self._asked_s.keys() | in_use

    def _leave(self, topics: Iterable[str]) -> None:
        """Let the next `forget` drop the metadata of these topics, unless `ask` keeps it for longer."""
        for topic in topics:
            self._asked_s.setdefault(topic, -inf)
