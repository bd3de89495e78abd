"""The traffic of topics over time, for charts: of the busiest topics, and of those that pages showed."""

from __future__ import annotations

from collections import OrderedDict
from heapq import nlargest

from ..bounds import TOPICS_BUSY, TOPICS_REMEMBERED_MAX
from .counters import Rates, TopicTraffic
from .history import Points, SeriesHistory


class TopicHistories:
    """The traffic per second of at most TOPICS_REMEMBERED_MAX topics.

    Each reading adds the TOPICS_BUSY busiest topics. A topic that was neither busy nor shown for longest is forgotten.
    """

    def __init__(self) -> None:
        self._topics: OrderedDict[str, dict[TopicTraffic, SeriesHistory]] = OrderedDict()

    def show(self, topic: str) -> None:
        """Begin the history of a topic that a page shows, if there is none."""
        self._topics.setdefault(topic, {})
        self._topics.move_to_end(topic)
        if len(self._topics) > TOPICS_REMEMBERED_MAX:
            self._topics.popitem(last=False)

    def note(self, at_s: float, rates: Rates) -> None:
        """Record the rates of a reading at `at_s`, in seconds since 1970. No rates leave a gap."""
        busy = rates.topics.get(TopicTraffic.RECORDS_IN, {})
        for topic in reversed(nlargest(TOPICS_BUSY, busy, key=busy.__getitem__)):
            if busy[topic] > 0:
                self.show(topic)
        for topic, histories in self._topics.items():
            for traffic in rates.topics or histories:
                history = histories.get(traffic)
                if history is None:
                    history = histories[traffic] = SeriesHistory()
                history.note(at_s, rates.of_topic(topic, traffic))

    def points(self, topic: str, traffic: TopicTraffic, span_s: float, now_s: float) -> Points:
        """Return the recorded points of a topic's traffic; none for a topic without a history."""
        history = self._topics.get(topic, {}).get(traffic)
        return [] if history is None else history.points(span_s, now_s)
