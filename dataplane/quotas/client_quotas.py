"""All quotas of this broker's clients, as stored in the quorum."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.cluster.cluster_image import ClusterImage, QuotaEntity
from ...protocol.cluster.image_delta import ImageDelta
from .limits import QuotaLimits
from .rate_quota import MutationQuota, RateQuota
from .windows import QuotaWindows


class ClientQuotas:
    """The quotas of all clients, one per kind: bytes produced, bytes consumed, processor time, connections and
    mutations. Each attribute is None while no client has a quota of its kind, so that nothing is looked up or measured.
    """

    __slots__ = ("_windows", "connections", "consumer", "mutations", "producer", "requests")

    def __init__(self, windows: QuotaWindows | None = None) -> None:
        self._windows = windows or QuotaWindows()
        self.producer: RateQuota | None = None
        self.consumer: RateQuota | None = None
        self.requests: RateQuota | None = None
        self.connections: RateQuota | None = None
        self.mutations: MutationQuota | None = None

    def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Apply the client quotas of the cluster image, if the change `delta` affects quotas."""
        if delta.client_quotas:
            self.changed(image.client_quotas)

    def changed(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace the limits of all quotas by the limits in `quotas`, as the quorum has them now."""
        self.producer = self._rates(self.producer, QuotaLimits(quotas, "producer_byte_rate"))
        self.consumer = self._rates(self.consumer, QuotaLimits(quotas, "consumer_byte_rate"))
        self.requests = self._rates(self.requests, QuotaLimits(quotas, "request_percentage"), bounded=True)
        self.connections = self._rates(
            self.connections, QuotaLimits(quotas, "connection_creation_rate"), bounded=True
        )
        self.mutations = self._mutations(QuotaLimits(quotas, "controller_mutation_rate"))

    def _rates(
        self, quota: RateQuota | None, limits: QuotaLimits, *, bounded: bool = False
    ) -> RateQuota | None:
        """Return the quota of one kind with new limits; None if there are no limits. As in Kafka, waits for processor
        time and for connections last at most one sample (`bounded`).
        """
        if not limits:
            return None
        if quota is None:
            if bounded:
                return RateQuota(self._windows, limits, throttle_ms_max=self._windows.sample_ms)
            return RateQuota(self._windows, limits)
        quota.limit_by(limits)
        return quota

    def _mutations(self, limits: QuotaLimits) -> MutationQuota | None:
        if not limits:
            return None
        if self.mutations is None:
            return MutationQuota(self._windows, limits)
        self.mutations.limit_by(limits)
        return self.mutations
