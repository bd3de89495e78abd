"""Periodic samples of the cluster, taken once for all pages, with a bounded history.

While a browser shows a page, a sample is taken every WATCHED_S seconds. Otherwise the sampler only continues the
history, every IDLE_S seconds or less often, so that it takes at most IDLE_CPU of a core. It then reads counters every
IDLE_COUNTERS_S seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from ...client.records import TopicPartition
from ...protocol.errors import KafkaError
from ..bounds import COMMITS_MAX, EVENTS_MAX
from ..charts import SPAN, SPANS, Series
from .broker_absences import absences
from .counter_sources import CounterSource
from .counters import CounterReading, Rates, TopicTraffic, rates_between
from .events import Event, events_between
from .history import SeriesHistory, highest, mean
from .node_readings import CommitReading, NodeReading, all_commits, commits_between
from .snapshots import ClusterSnapshot
from .topic_histories import TopicHistories

logger = logging.getLogger(__name__)

WATCHED_S: Final = 2.0
IDLE_S: Final = 15.0
IDLE_COUNTERS_S: Final = 60.0
IDLE_CPU: Final = 0.005
LOOKS_FOR_S: Final = 30.0
"""Seconds after the last request for which a browser counts as looking."""
UNDER_REPLICATED: Final = "under-replicated"
OFFLINE: Final = "offline"
COMMIT_MS: Final = "quorum commit"


class Sampler:
    """The newest snapshot of the cluster, its traffic per second, and the history of both for charts."""

    def __init__(
        self,
        ask: Callable[[float], Awaitable[ClusterSnapshot]],
        source: CounterSource,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Keep the sources of samples.

        `ask` takes a snapshot of the cluster at the given time in seconds since 1970; `source` reads traffic counters.
        """
        self._ask, self._source, self._now = ask, source, now
        self._latest: ClusterSnapshot | None = None
        self._asking: asyncio.Task[ClusterSnapshot] | None = None
        self._reading: CounterReading | None = None
        self._read_s = 0.0
        self._nodes: Mapping[str, NodeReading] = {}
        self._commits: deque[tuple[float, CommitReading]] = deque(maxlen=COMMITS_MAX)
        self._looked_s = 0.0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._series: dict[str, SeriesHistory] = {}
        self._topics = TopicHistories()
        self.rates = Rates()
        """The rates between the two newest readings."""
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)
        """The events, the newest last."""
        self.absent_since: Mapping[int, float] = {}
        """The times (seconds since 1970) at which absent brokers were seen to leave."""

    def start(self, *, samples_unwatched: bool = True) -> None:
        """Start sampling. Without `samples_unwatched`, the sampler pauses while no browser shows a page."""
        idle_s = IDLE_S if samples_unwatched else None
        self._task = asyncio.create_task(self._run(idle_s), name="sampler of the console")

    async def stop(self) -> None:
        """Stop sampling."""
        for task in (self._task, self._asking):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    @property
    def now_s(self) -> float:
        """The present time of samples, in seconds since 1970: the right end of charts."""
        return self._now()

    async def snapshot(self, *, age_max_s: float = WATCHED_S) -> ClusterSnapshot:
        """Return a snapshot that is at most `age_max_s` old. Concurrent callers get the same one. Raises KafkaError."""
        self._looked_s = self._now()
        self._wake.set()
        if self._latest is not None and self._now() - self._latest.at_s <= age_max_s:
            return self._latest
        return await self._renewed()

    def series(self, name: str, span_s: float = SPANS[SPAN]) -> Series:
        """Return the recorded series of a chart, of the last `span_s` seconds.

        `name` is one of `TopicTraffic`, UNDER_REPLICATED, OFFLINE, COMMIT_MS.
        """
        history = self._series.get(name)
        return Series(name, [] if history is None else history.points(span_s, self._now()))

    def topic_series(self, topic: str, traffic: TopicTraffic, span_s: float = SPANS[SPAN]) -> Series:
        """Return the recorded traffic of a topic, of the last `span_s` seconds.

        The call begins the history of a topic that has none.
        """
        self._topics.show(topic)
        return Series(traffic, self._topics.points(topic, traffic, span_s, self._now()))

    async def nodes(self) -> Mapping[str, NodeReading]:
        """Return the certificates and commit times that the metrics endpoints report now, by host and port."""
        return await self._source.nodes()

    async def held(self, group_id: str) -> Mapping[TopicPartition, int] | None:
        """Return the number of records that members of a share group hold in each partition that the metrics endpoints
        report now; None without metrics endpoints."""
        return await self._source.held(group_id)

    def commits(self, span_s: float) -> CommitReading | None:
        """Return the histogram of the quorum's commits that were sampled within the last `span_s` seconds.

        None if no endpoint reports commits.
        """
        found = [commit for at_s, commit in self._commits if at_s >= self._now() - span_s]
        return all_commits(found) if found else None

    async def sample(self) -> None:
        """Take one sample of the cluster and add it to the history. A cluster that does not answer leaves a gap."""
        try:
            snapshot = await self._renewed()
            self._note(UNDER_REPLICATED, snapshot.under_replicated_total)
            self._note(OFFLINE, snapshot.offline_total)
            if not self._is_watched() and self._now() - self._read_s < IDLE_COUNTERS_S:
                return
            counters, nodes = await self._source.read(snapshot), await self._source.nodes()
        except (KafkaError, OSError, TimeoutError) as error:
            logger.debug("no sample: %s", error)
            self._pause()
            return
        self._read_s = self._now()
        self._keep_commits(nodes)
        self._keep(CounterReading(self._now(), counters) if counters else None)

    def _is_watched(self) -> bool:
        return self._now() - self._looked_s < LOOKS_FOR_S

    def _keep(self, reading: CounterReading | None) -> None:
        before, self._reading = self._reading, reading
        self.rates = Rates() if before is None or reading is None else rates_between(before, reading)
        for what in TopicTraffic:
            self._note(what, self.rates.totals.get(what))
        self._topics.note(self._now(), self.rates)

    def _keep_commits(self, nodes: Mapping[str, NodeReading]) -> None:
        before, self._nodes = self._nodes, nodes
        commits = commits_between(before, nodes)
        if commits is not None:
            self._commits.append((self._now(), commits))
        self._note(COMMIT_MS, None if commits is None else commits.mean_ms)

    def _note(self, name: str, value: float | None) -> None:
        if name not in self._series:
            self._series[name] = SeriesHistory(highest if name in (UNDER_REPLICATED, OFFLINE) else mean)
        self._series[name].note(self._now(), value)

    def _pause(self) -> None:
        """Record that there is no sample, so that lines of charts have a gap here, and no rate spans it."""
        self._reading, self._nodes, self.rates = None, {}, Rates()
        for name in (UNDER_REPLICATED, OFFLINE, COMMIT_MS, *TopicTraffic):
            self._note(name, None)
        self._topics.note(self._now(), Rates())

    async def _renewed(self) -> ClusterSnapshot:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._renew(), name="snapshot of the console")
            self._asking.add_done_callback(_retrieve)
        return await asyncio.shield(self._asking)

    async def _renew(self) -> ClusterSnapshot:
        new = await self._ask(self._now())
        if self._latest is not None:
            self.events.extend(events_between(self._latest, new))
        self.absent_since = absences(self.absent_since, self._latest, new)
        self._latest = new
        return new

    async def _run(self, idle_s: float | None) -> None:
        if idle_s is None:
            await self._wake.wait()
        while True:
            began_s = time.process_time()
            try:
                await self.sample()
            except Exception:
                logger.exception("a sample failed; the next one is tried all the same")
            used_s = time.process_time() - began_s
            self._wake.clear()
            if self._is_watched():
                await asyncio.sleep(WATCHED_S)
                continue
            if idle_s is None:
                self._pause()
            try:
                async with asyncio.timeout(None if idle_s is None else pause_s(idle_s, used_s)):
                    await self._wake.wait()
            except TimeoutError:
                continue


def pause_s(idle_s: float, used_s: float) -> float:
    """Return the seconds to pause after a sample that took `used_s` seconds of CPU time, while no browser shows a page.

    The least pause is `idle_s`.
    """
    return max(idle_s, used_s / IDLE_CPU)


def _retrieve(task: asyncio.Task[ClusterSnapshot]) -> None:
    """Retrieve the error of a failed snapshot for which no caller waits any more, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
