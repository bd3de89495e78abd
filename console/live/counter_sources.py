"""Sources of traffic counters: the metrics endpoints of brokers, or the partitions' end offsets if there are no
endpoints."""

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
from ...client.records import TopicPartition
from ...protocol.errors import KafkaError
from ..bounds import EXPOSITION_BYTES_MAX, PARTITIONS_SAMPLED_MAX
from .counters import Key, TopicTraffic, counters_of
from .node_readings import NodeReading, held_records, node_reading
from .snapshots import ClusterSnapshot

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0
SAME_FOR_S = 1.0


class CounterSource(Protocol):
    """A source of the cluster's traffic counters and of values about its nodes."""

    async def read(self, snapshot: ClusterSnapshot) -> Mapping[Key, float]:
        """Return the present values of the traffic counters; no values if they are unavailable."""

    async def nodes(self) -> Mapping[str, NodeReading]:
        """Return the certificates and commit times on each metrics page, by the endpoint's host and port; nothing
        without metrics endpoints."""

    async def held(self, group_id: str) -> Mapping[TopicPartition, int] | None:
        """Return the number of records that members of a share group hold in each reported partition; None without
        metrics endpoints."""


class MetricsEndpoints:
    """The brokers' metrics endpoints, read over HTTP. Endpoints that do not answer are left out of the results."""

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
        """Return the traffic counters of all metrics endpoints that answer."""
        found: dict[Key, float] = {}
        for address, text in (await self._fetch_all()).items():
            found |= counters_of(address, text)
        return found

    async def nodes(self) -> Mapping[str, NodeReading]:
        """Return the certificates and commit times of all metrics endpoints that answer, by host and port."""
        texts = await self._fetch_all()
        return {urlsplit(url).netloc: node_reading(text) for url, text in texts.items() if text}

    async def held(self, group_id: str) -> Mapping[TopicPartition, int]:
        """Return the held records in each partition of a share group that an endpoint reports."""
        found: dict[TopicPartition, int] = {}
        for text in (await self._fetch_all()).values():
            found |= held_records(group_id, text)
        return found

    async def _fetch_all(self) -> Mapping[str, str]:
        """Return the metrics pages of all endpoints by URL; empty text for endpoints that do not answer.

        Pages that are at most SAME_FOR_S seconds old are returned again.
        """
        async with self._fetching:
            if time.monotonic() - self._fetched_s > SAME_FOR_S:
                asked = (asyncio.to_thread(self._fetch, address) for address in self._addresses)
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
    """The end offsets of partitions as counters of records, read from the partitions' leaders.

    Rates of bytes are unknown.
    """

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def nodes(self) -> Mapping[str, NodeReading]:
        """Return nothing: leaders report no certificates and no commit times."""
        return {}

    async def held(self, group_id: str) -> None:
        """Return None: no request of Kafka's protocol asks for held records."""

    async def read(self, snapshot: ClusterSnapshot) -> Mapping[Key, float]:
        """Return the end offset of each partition that has a leader.

        Returns nothing beyond PARTITIONS_SAMPLED_MAX partitions, where the requests would be a considerable load.
        """
        led = [name for name, partition in snapshot.partitions() if partition.leader >= 0]
        if len(led) > PARTITIONS_SAMPLED_MAX:
            return {}
        found: dict[Key, float] = {}
        ends = await self._admin.list_offsets(dict.fromkeys(led, LATEST))
        for name, end in ends.items():
            if not isinstance(end, KafkaError):
                key = (str(name.partition), TopicTraffic.RECORDS_IN, name.topic)
                found[key] = float(end)
        return found
