"""The limits of connections: their number, and the number of new ones per second (KIP-402, KIP-612).

Pure: time is passed as an argument. There are limits for all listeners together, for a listener, and for an address.

If brokers have a dedicated listener, the limits for all listeners do not exclude them: beyond `most` a connection of
another listener is closed, and a total rate delays only other listeners.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...protocol.settings.address_limits import NO_ADDRESS_LIMITS, AddressLimits
from ...protocol.settings.config_key import INT_MAX
from ..quotas.windows import MeasuredRate, QuotaWindows


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """The limits, which may change while the server runs. Listeners that are not named have only the total limits."""

    most: int = INT_MAX
    most_of_address: int = INT_MAX
    most_of_addresses: AddressLimits = NO_ADDRESS_LIMITS
    """Limits of single addresses, which take precedence over `most_of_address`."""
    most_of_listener: Mapping[str, int] = field(default_factory=dict)
    rate: int = INT_MAX
    """The maximum number of new connections per second."""
    rate_of_listener: Mapping[str, int] = field(default_factory=dict)
    listener_of_brokers: str | None = None
    """The listener that only brokers use; None if clients use it, too."""


class Admissions:
    """The counts of open connections and the rates of new ones, by which a server admits or refuses a connection."""

    def __init__(self, limits: AdmissionLimits, windows: QuotaWindows) -> None:
        self.limits = limits
        self._windows = windows
        self.open = 0
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        self._rate = MeasuredRate(windows)
        self._rates: dict[str, MeasuredRate] = {}

    def refusal(self, listener: str, address: str) -> str | None:
        """Return the setting by which one more connection is refused; None if it is admitted."""
        limits = self.limits
        if self._of_listener[listener] >= limits.most_of_listener.get(listener, INT_MAX):
            return f"listener.name.{listener.lower()}.max.connections"
        if listener != limits.listener_of_brokers and self.open >= limits.most:
            return "max.connections"
        own_limit = limits.most_of_addresses.of(address)
        if own_limit is not None:
            return "max.connections.per.ip.overrides" if self._of_address[address] >= own_limit else None
        return "max.connections.per.ip" if self._of_address[address] >= limits.most_of_address else None

    def enter(self, listener: str, address: str) -> None:
        """Count a new connection of this listener and address."""
        self.open += 1
        self._of_listener[listener] += 1
        self._of_address[address] += 1

    def leave(self, listener: str, address: str) -> None:
        """Remove a closed connection of this listener and address from the counts."""
        self.open -= 1
        for counter, name in ((self._of_listener, listener), (self._of_address, address)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]

    @property
    def is_full_beyond(self) -> bool:
        """True if connections of brokers have exceeded the limit, so that another connection must be closed."""
        return self.open > self.limits.most

    def came(self, listener: str, now_ms: float) -> int:
        """Record a new connection in the rates of the listener and of the whole server. Returns the milliseconds for
        which the listener must accept no other connection.
        """
        limits, wait_ms = self.limits, 0
        if listener != limits.listener_of_brokers:
            wait_ms = self._measured(self._rate, limits.rate, now_ms)
        own_limit = limits.rate_of_listener.get(listener)
        if own_limit is not None:
            rate = self._rates.setdefault(listener, MeasuredRate(self._windows))
            wait_ms = max(wait_ms, self._measured(rate, own_limit, now_ms))
        return wait_ms

    def _measured(self, rate: MeasuredRate, limit: int, now_ms: float) -> int:
        """Record one connection in `rate`, and return the milliseconds until the rate is within `limit` per second. As
        in Kafka, the longest wait is one sample.
        """
        if limit >= INT_MAX:
            return 0
        rate.record(1, now_ms)
        return min(rate.throttle_ms(limit, now_ms), self._windows.sample_ms)
