"""Logins by token (OAUTHBEARER): the mechanisms of listeners, and the signing keys that they share.

The code that checks signatures is imported only if a listener offers OAUTHBEARER, since it costs an idle broker time
and memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...protocol.exposition import Family, gauge
from ..runtime.clocks import monotonic_ms, wall_ms
from ..security.sasl.login import Mechanism

if TYPE_CHECKING:
    from ..security.oauth.provider_keys import ProviderKeys
    from ..security.oauth.settings import BearerSettings, KeySource

logger = logging.getLogger(__name__)

OAUTH_KEYS = gauge(
    "ottla_oauth_keys",
    "Keys of an authorization server for the signatures of tokens; with 0 no client can log in.",
    "url",
)
OAUTH_KEYS_AGE = gauge(
    "ottla_oauth_keys_age_seconds",
    "Seconds since these keys were last read; absent if they were never read.",
    "url",
)


class BearerLogins:
    """The OAUTHBEARER mechanisms of a broker's listeners, and the signing keys of the authorization servers whose
    tokens they accept.
    """

    def __init__(self) -> None:
        self._keys: dict[KeySource, ProviderKeys] = {}

    @property
    def keys(self) -> Mapping[KeySource, ProviderKeys]:
        """Cached signing keys of the authorization servers, by the source from which they are read."""
        return self._keys

    def mechanism(self, settings: BearerSettings) -> Mechanism:
        """Return the OAUTHBEARER mechanism of one listener. Listeners with equal sources share the signing keys."""
        from ..security.sasl.oauthbearer import BearerMechanism

        for remark in settings.remarks:
            logger.warning("%s", remark)
        keys = None if settings.source is None else self._keys_of(settings.source)
        return BearerMechanism(settings.rules, keys, wall_ms)

    def _keys_of(self, source: KeySource) -> ProviderKeys:
        from ..security.oauth.provider_keys import ProviderKeys, reader_of

        if source not in self._keys:
            self._keys[source] = ProviderKeys(source, reader_of(source), lambda: monotonic_ms() / 1000)
        return self._keys[source]

    def start(self) -> None:
        """Begin to read the signing keys periodically."""
        for keys in self._keys.values():
            keys.start()

    async def close(self) -> None:
        """Stop reading keys."""
        await asyncio.gather(*(keys.close() for keys in self._keys.values()))

    def metric_families(self) -> Iterator[Family]:
        """Yield the metrics of the signing keys, by the URL of their authorization server."""
        by_url = {source.url: keys for source, keys in self._keys.items()}
        yield Family(OAUTH_KEYS, [((url,), len(keys)) for url, keys in by_url.items()])
        ages = {url: keys.age_s for url, keys in by_url.items()}
        yield Family(OAUTH_KEYS_AGE, [((url,), int(age)) for url, age in ages.items() if age is not None])
