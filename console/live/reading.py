"""Where counters are read: at the metrics endpoints of brokers, or from end offsets where there are none."""

from __future__ import annotations

import asyncio
import logging
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Protocol

from ...client.admin import Admin
from ...client.admin.records import LATEST
from ...protocol.errors import KafkaError
from ..bounds import EXPOSITION_BYTES_MAX, PARTITIONS_SAMPLED_MAX
from .counters import Key, TopicTraffic, counters_of
from .snapshots import ClusterSnapshot

logger = logging.getLogger(__name__)

TIMEOUT_S = 5.0


class CounterSource(Protocol):
    """Tells counters."""

    async def read(self, snapshot: ClusterSnapshot) -> Mapping[Key, float]:
        """The counters now; none where they cannot be had."""


class MetricsEndpoints:
    """Asks brokers over HTTP. One that does not answer is missing in the sums."""

    def __init__(
        self, addresses: Sequence[str], *, token: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._addresses = tuple(addresses)
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._tls = tls

    async def read(self, snapshot: ClusterSnapshot) -> Mapping[Key, float]:
        """All endpoints at once, in threads: they are few."""
        texts = await asyncio.gather(*(asyncio.to_thread(self._fetch, one) for one in self._addresses))
        found: dict[Key, float] = {}
        for address, text in zip(self._addresses, texts, strict=True):
            found |= counters_of(address, text)
        return found

    def _fetch(self, address: str) -> str:
        request = urllib.request.Request(address, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:
                return bytes(answer.read(EXPOSITION_BYTES_MAX)).decode(errors="replace")
        except (OSError, ValueError) as error:
            logger.debug("metrics of %s: %s", address, error)
            return ""


class EndOffsets:
    """Asks leaders for the ends of their partitions. Bytes are not known then."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def read(self, snapshot: ClusterSnapshot) -> Mapping[Key, float]:
        """None in a cluster with so many partitions that asking would be a load of its own."""
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
