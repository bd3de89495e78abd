"""The broker that FindCoordinator names for a transactional id.

Any broker could pass the requests on to the quorum. A named broker keeps the requests of an id on one connection, and
the ids are spread over the brokers.
"""

from __future__ import annotations

from hashlib import blake2b

from ...protocol.cluster.cluster_image import ClusterImage

NOBODY = -1


def coordinator_of(transactional_id: str, image: ClusterImage) -> int:
    """Return the broker that FindCoordinator names, `NOBODY` if no broker is usable.

    This is rendezvous hashing: when a broker goes, only its ids move (Thaler and Ravishankar, 1998).
    """
    name = transactional_id.encode("utf-8", "surrogatepass")

    def weight(broker_id: int) -> tuple[bytes, int]:
        return blake2b(name, digest_size=8, salt=broker_id.to_bytes(16, "big")).digest(), broker_id

    usable = (broker.broker_id for broker in image.brokers.values() if broker.usable)
    return max(usable, key=weight, default=NOBODY)
