"""Who may connect: how many connections there may be, and how many may come in a second (KIP-402, KIP-612).

Pure: time comes in as an argument. Limits are for all listeners, for one, and for one address.

Where brokers have a listener of their own, the limits of all do not shut them out: beyond `most` one connection of
another listener has to go, and a rate of all slows down the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...protocol.settings.address_limits import NO_ADDRESS_LIMITS, AddressLimits
from ...protocol.settings.config_key import INT_MAX
from ..quotas.windows import QuotaWindows, Rate


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """They may change while the server runs. Listeners that are not named have no limit of their own."""

    most: int = INT_MAX
    most_of_address: int = INT_MAX
    most_of_addresses: AddressLimits = NO_ADDRESS_LIMITS
    """They count before `most_of_address`."""
    most_of_listener: Mapping[str, int] = field(default_factory=dict)
    rate: int = INT_MAX
    """Connections that may come in a second."""
    rate_of_listener: Mapping[str, int] = field(default_factory=dict)
    listener_of_brokers: str | None = None
    """Where only brokers connect; None if clients do, too."""


class Admissions:
    """Counts the connections that are open, and measures how fast they come."""

    def __init__(self, limits: AdmissionLimits, windows: QuotaWindows) -> None:
        self.limits = limits
        self._windows = windows
        self.open = 0
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        self._rate = Rate(windows)
        self._rates: dict[str, Rate] = {}

    def refusal(self, listener: str, address: str) -> str | None:
        """The setting by which one more connection is refused; None if it may come."""
        limits = self.limits
        if self._of_listener[listener] >= limits.most_of_listener.get(listener, INT_MAX):
            return f"listener.name.{listener.lower()}.max.connections"
        if listener != limits.listener_of_brokers and self.open >= limits.most:
            return "max.connections"
        of_its_own = limits.most_of_addresses.of(address)
        if of_its_own is not None:
            return "max.connections.per.ip.overrides" if self._of_address[address] >= of_its_own else None
        return "max.connections.per.ip" if self._of_address[address] >= limits.most_of_address else None

    def enter(self, listener: str, address: str) -> None:
        """One more connection."""
        self.open += 1
        self._of_listener[listener] += 1
        self._of_address[address] += 1

    def leave(self, listener: str, address: str) -> None:
        """One connection less."""
        self.open -= 1
        for counter, name in ((self._of_listener, listener), (self._of_address, address)):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]

    @property
    def is_full_beyond(self) -> bool:
        """Brokers have taken more than there is room for: somebody else has to go."""
        return self.open > self.limits.most

    def came(self, listener: str, now_ms: float) -> int:
        """A connection has come; for how many ms its listener takes no other."""
        limits, wait_ms = self.limits, 0
        if listener != limits.listener_of_brokers:
            wait_ms = self._measured(self._rate, limits.rate, now_ms)
        of_its_own = limits.rate_of_listener.get(listener)
        if of_its_own is not None:
            rate = self._rates.setdefault(listener, Rate(self._windows))
            wait_ms = max(wait_ms, self._measured(rate, of_its_own, now_ms))
        return wait_ms

    def _measured(self, rate: Rate, limit: int, now_ms: float) -> int:
        """As in Kafka, one sample is the longest wait."""
        if limit >= INT_MAX:
            return 0
        rate.record(1, now_ms)
        return min(rate.throttle_ms(limit, now_ms), self._windows.sample_ms)
