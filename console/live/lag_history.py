"""The lag of groups by topic over time, for charts, within limits. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from ..bounds import LAG_GROUPS_MAX, LAG_TOPICS_MAX
from ..charts import Series
from .history import SeriesHistory, highest


class LagHistory:
    """The lag of the LAG_GROUPS_MAX groups that pages showed most recently.

    It is recorded each time a page shows the group. A group has the LAG_TOPICS_MAX topics with the most lag when they
    were recorded.
    """

    def __init__(self) -> None:
        self._groups: OrderedDict[str, OrderedDict[str, SeriesHistory]] = OrderedDict()

    def note(self, group: str, at_s: float, lags: Mapping[str, int | None]) -> None:
        """Record the lag of a group by topic at `at_s`, in seconds since 1970."""
        topics = self._groups.setdefault(group, OrderedDict())
        self._groups.move_to_end(group)
        if len(self._groups) > LAG_GROUPS_MAX:
            self._groups.popitem(last=False)
        most = sorted(lags, key=lambda topic: (-(lags[topic] or 0), topic))[:LAG_TOPICS_MAX]
        for topic in reversed(most):
            if topic not in topics:
                topics[topic] = SeriesHistory(highest)
            topics.move_to_end(topic)
        while len(topics) > LAG_TOPICS_MAX:
            topics.popitem(last=False)
        for topic, history in topics.items():
            history.note(at_s, lags.get(topic))

    def series(self, group: str, span_s: float, now_s: float) -> list[Series]:
        """Return the chart lines of a group's topics for the `span_s` seconds before `now_s`, the most lag first."""
        topics = self._groups.get(group, OrderedDict[str, SeriesHistory]()).items()
        lines = [Series(topic, history.points(span_s, now_s)) for topic, history in topics]
        return sorted(lines, key=lambda line: (-(line.last or 0), line.name))
