"""Detection of the cluster's features: areas that the cluster does not support are hidden."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from ..client.admin import Admin
from ..client.failures import VersionUnsupported
from ..protocol.errors import ErrorCode, KafkaError
from .area import Area

logger = logging.getLogger(__name__)

PROBE_S: Final = 3.0
KNOWN_FOR_S: Final = 60.0
"""Seconds for which a result holds, since brokers may be upgraded while the console runs."""


class ClusterFeatures:
    """The areas of the console that the cluster supports.

    Each area's probe is sent to the cluster, again after KNOWN_FOR_S seconds.
    """

    def __init__(
        self, areas: Sequence[Area], admin: Admin, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._areas = sorted(areas, key=lambda area: (area.place, area.name))
        self._admin, self._now = admin, now
        self._offered: dict[str, bool] = {}
        self._asked_s: float | None = None

    async def areas(self) -> list[Area]:
        """Return the areas that the cluster supports, in the order of the navigation.

        An area whose probe got no answer is included.
        """
        if self._asked_s is None or self._now() - self._asked_s > KNOWN_FOR_S:
            self._asked_s = self._now()
            await asyncio.gather(*(self._ask(area) for area in self._areas))
        return [area for area in self._areas if self._offered.get(area.name, True)]

    async def _ask(self, area: Area) -> None:
        """Send an area's probe to the cluster, and note whether the area is supported.

        An area is hidden only where the cluster answers that it does not support the request.
        """
        if area.probe is None:
            return
        try:
            async with asyncio.timeout(PROBE_S):
                await area.probe(self._admin)
        except VersionUnsupported:
            self._offered[area.name] = False
        except KafkaError as error:
            self._offered[area.name] = error.code != ErrorCode.UNSUPPORTED_VERSION
        except TimeoutError:
            logger.debug("whether there is %s is not known: no answer", area.name)
        else:
            self._offered[area.name] = True
