"""The topics that match the patterns of members, found in slices. Pure.

A search goes over the names of all topics, and later over the names of new topics alone. Each slice takes work of
`TURN_WORK_MAX` at most. Unfinished searches take turns, so a slow pattern delays no other search. The caller brings the
event loop: without one, every search is done at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from ....protocol.errors import ErrorCode, KafkaError
from ...patterns import TURN_WORK_MAX, Pattern, compile_pattern

PATTERN_NAME = "SubscribedTopicRegex"
"""The name of a pattern of topics in errors."""
FOUND_MAX: Final = 1_000_000
"""Maximum number of topics, and of characters of patterns, in the stored results: some 60 MB at most."""
OPEN_MAX: Final = 100
"""Maximum number of concurrent searches; a heartbeat that needs another search has to be sent again."""
_COMPILING_WORK: Final = TURN_WORK_MAX // 2

Later = Callable[[Callable[[], None]], object]
"""A function that calls another function in a later turn of the event loop."""


class _Search:
    """The search for the topics that match one pattern: topic names still to be matched, and the ids found so far."""

    __slots__ = ("found", "ids", "is_read_early", "is_void", "names", "pattern", "regex", "then")

    def __init__(self, regex: str, names: Mapping[str, bytes]) -> None:
        self.regex = regex
        # Only set while the search goes on, since a compiled pattern may take a megabyte.
        self.pattern: Pattern | None = None
        # An earlier release stored the pattern, and it does not compile: its topics are unknown.
        self.is_void = False
        self.names = deque(names)
        self.ids: set[bytes] = set()
        self.found: frozenset[bytes] | None = None
        # A caller has used results from before the end of the search.
        self.is_read_early = False
        self.then: list[Callable[[], None]] = []

    @property
    def weight(self) -> int:
        """The size of the stored result, in topics found and characters of the pattern; the sum is limited by
        `FOUND_MAX`."""
        return len(self.regex) + len(self.ids) + 1


class PatternSearches:
    """Searches by pattern, in the order of their last use. Invariant: `_open` has the searches with names left to
    match."""

    def __init__(self, names: Mapping[str, bytes], changed: Callable[[], None], later: Later | None) -> None:
        """Create an empty set of searches.

        `names` has the ids of all topics, and the caller keeps it up to date. `changed` is called at the end of a
        search of which a caller has used earlier results.
        """
        self._names, self._changed, self._later = names, changed, later
        self._searches: dict[str, _Search] = {}
        self._open: dict[str, _Search] = {}
        self._weight = 0
        self._goes_on = False

    def begin(self, regex: str) -> None:
        """Begin to search for the topics that match a pattern, unless a search exists.

        Raises KafkaError: INVALID_REGULAR_EXPRESSION; COORDINATOR_LOAD_IN_PROGRESS if too many searches go on.
        """
        search = self._searches.get(regex)
        if search is not None and not search.is_void:
            return
        pattern = compile_pattern(regex, PATTERN_NAME)
        if len(self._open) >= OPEN_MAX:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"{len(self._open)} patterns are being matched with the topics already.",
            )
        self._begin(regex, pattern)

    def _begin(self, regex: str, pattern: Pattern | None = None) -> _Search:
        search = self._searches[regex] = _Search(regex, self._names)
        search.pattern = pattern
        self._weight += search.weight
        self._open[regex] = search
        self._slice(search, TURN_WORK_MAX)
        self._go_on_later()
        return search

    def found(self, regex: str) -> frozenset[bytes]:
        """Return the ids of the topics known so far to match a pattern. A search begins if there is none; `is_complete`
        returns whether it is done."""
        search = self._searches.get(regex)
        if search is None:
            search = self._begin(regex)
        else:
            del self._searches[regex]
            self._searches[regex] = search
        if search.names:
            search.is_read_early = True
        if search.found is None:
            search.found = frozenset(search.ids)
        return search.found

    def is_complete(self, regex: str) -> bool:
        """Return whether the pattern has been matched with all topics."""
        search = self._searches.get(regex)
        return search is not None and not search.names and not search.is_void

    def when_complete(self, regex: str, then: Callable[[], None]) -> None:
        """Call `then` once the pattern has been matched with all topics, perhaps within this call."""
        search = self._searches.get(regex)
        if search is None or not search.names:
            then()
        else:
            search.then.append(then)

    # ------------------------------------------------------------ topics

    def came(self, name: str) -> None:
        """Add the name of a new topic, with which all patterns have to be matched."""
        for search in self._searches.values():
            search.names.append(name)
            self._open[search.regex] = search

    def gone(self, topic_id: bytes) -> None:
        """Remove a deleted topic from the results of all patterns."""
        for search in self._searches.values():
            if topic_id in search.ids:
                search.ids.discard(topic_id)
                search.found = None
                self._weight -= 1

    def look(self) -> None:
        """Match patterns with the names of added topics, if searches are not under way already."""
        if self._open and not self._goes_on:
            self._go_on()

    # ------------------------------------------------------------ slices

    def _go_on(self) -> None:
        self._goes_on = False
        left = TURN_WORK_MAX
        while left > 0 and self._open:
            regex, search = next(iter(self._open.items()))
            # The next turn begins with the next search.
            del self._open[regex]
            self._open[regex] = search
            left -= self._slice(search, left)
        self._go_on_later()

    def _go_on_later(self) -> None:
        if self._later is None:
            while self._open:
                self._slice(next(iter(self._open.values())), TURN_WORK_MAX)
        elif self._open and not self._goes_on:
            self._goes_on = True
            self._later(self._go_on)

    def _slice(self, search: _Search, most: int) -> int:
        """Match a pattern with as many topic names as `most` permits; return the work, in instructions times
        characters."""
        done = 0
        if search.pattern is None and not search.is_void:
            done = _COMPILING_WORK
            try:
                search.pattern = compile_pattern(search.regex, PATTERN_NAME)
            except KafkaError:
                search.is_void = True
        pattern, names = search.pattern, search.names
        if pattern is None:
            names.clear()
        else:
            while names and done < most:
                name = names.popleft()
                topic_id = self._names.get(name)
                done += pattern.work(name)
                if topic_id is not None and topic_id not in search.ids and pattern.fullmatch(name):
                    search.ids.add(topic_id)
                    search.found = None
                    self._weight += 1
        if not names:
            self._end(search)
        return done

    def _end(self, search: _Search) -> None:
        search.pattern = None
        del self._open[search.regex]
        was_read_early, search.is_read_early = search.is_read_early, False
        self._make_room()
        if was_read_early:
            self._changed()
        waiting, search.then = search.then, []
        for then in waiting:
            then()

    def _make_room(self) -> None:
        """Drop the least recently used searches while the results are too large. They begin again when a caller needs
        them."""
        for regex in list(self._searches):
            if self._weight <= FOUND_MAX:
                return
            if regex not in self._open:
                self._weight -= self._searches.pop(regex).weight
