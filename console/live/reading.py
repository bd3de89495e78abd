"""Sources of counters: the metrics endpoints of brokers, or end offsets if there are no endpoints."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from ...client.admin import Admin
from ...client.admin.records import LATEST
from ...protocol.errors import KafkaError
from ..bounds import EXPOSITION_BYTES_MAX, PARTITIONS_SAMPLED_MAX
from .counters import Key, TopicTraffic, counters_of
from .node_readings import NodeReading, node_reading
from .snapshots import ClusterSnapshot

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0
SAME_FOR_S = 1.0


class CounterSource(Protocol):
    """A source of counters."""

    async def read(self, snapshot: ClusterSnapshot) -> Mapping[Key, float]:
        """Return the present counters; none if they are unavailable."""

    async def nodes(self) -> Mapping[str, NodeReading]:
        """Return the values of each endpoint, by its host and port; none without endpoints."""


class MetricsEndpoints:
    """The brokers' metrics endpoints, read over HTTP. The sums omit endpoints that do not answer."""

    def __init__(
        self, addresses: Sequence[str], *, token: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._addresses = tuple(addresses)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._tls = tls
        self._texts: dict[str, str] = {}
        self._fetched_s = -SAME_FOR_S
        self._fetching = asyncio.Lock()

    async def read(self, snapshot: ClusterSnapshot) -> Mapping[Key, float]:
        """Return the counters of all endpoints that answer."""
        found: dict[Key, float] = {}
        for address, text in (await self._fetch_all()).items():
            found |= counters_of(address, text)
        return found

    async def nodes(self) -> Mapping[str, NodeReading]:
        """Return the values of all endpoints that answer."""
        texts = await self._fetch_all()
        return {urlsplit(one).netloc: node_reading(text) for one, text in texts.items() if text}

    async def _fetch_all(self) -> Mapping[str, str]:
        """Read all endpoints at once, in a few threads. Repeated calls within SAME_FOR_S get the same pages."""
        async with self._fetching:
            if time.monotonic() - self._fetched_s > SAME_FOR_S:
                asked = (asyncio.to_thread(self._fetch, one) for one in self._addresses)
                self._texts = dict(zip(self._addresses, await asyncio.gather(*asked), strict=True))
                self._fetched_s = time.monotonic()
        return self._texts

    def _fetch(self, address: str) -> str:
        request = urllib.request.Request(address, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:
                return bytes(answer.read(EXPOSITION_BYTES_MAX)).decode(errors="replace")
        except (OSError, ValueError) as error:
            logger.debug("metrics of %s: %s", address, error)
            return ""


class EndOffsets:
    """The end offsets of partitions, read from their leaders. They give no rates of bytes."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def nodes(self) -> Mapping[str, NodeReading]:
        """Return nothing: leaders do not report these values."""
        return {}

    async def read(self, snapshot: ClusterSnapshot) -> Mapping[Key, float]:
        """Return the end offsets; none in a cluster with too many partitions, where the requests would be a
        considerable load."""
        led = [name for name, one in snapshot.partitions() if one.leader >= 0]
        if len(led) > PARTITIONS_SAMPLED_MAX:
            return {}
        found: dict[Key, float] = {}
        ends = await self._admin.list_offsets(dict.fromkeys(led, LATEST))
        for name, end in ends.items():
            if not isinstance(end, KafkaError):
                key = (str(name.partition), TopicTraffic.RECORDS_IN, name.topic)
                found[key] = float(end)
        return found
