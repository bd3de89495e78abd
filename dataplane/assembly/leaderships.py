"""Elections and resignations of this broker, for the parts that keep state of led partitions."""

from __future__ import annotations

from ..cluster.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from ..coordinated_log.replicated_log import ReplicatedLog
from ..groups.coordinator import GroupCoordinator
from ..mirroring.mirrors import Mirrors
from ..replication.replica.partition import Partition
from ..share.state.coordinator import ShareStateCoordinator
from ..transactions.participant import TransactionParticipant
from .late_share_parts import LateShareParts


class Leaderships:
    """The listener to the roles of replicas that notifies mirrors, transactions, then groups or share states, and last
    share partitions.

    Mirrors abort the source's transactions in a promoted copy before anything else is appended. Missing transaction
    markers follow, before the groups replay the partition.
    """

    def __init__(
        self,
        mirrors: Mirrors,
        transactions: TransactionParticipant,
        groups: GroupCoordinator,
        share_states: ShareStateCoordinator,
        share_partitions: LateShareParts,
    ) -> None:
        self._mirrors = mirrors
        self._transactions = transactions
        self._groups = groups
        self._share_states = share_states
        self._share_partitions = share_partitions

    def elected(self, partition: Partition) -> None:
        """Notify the parts that this broker leads a partition now."""
        self._mirrors.elected(partition)
        self._transactions.elected(partition)
        if partition.topic == OFFSETS_TOPIC:
            self._groups.elected(partition.index, ReplicatedLog(partition))
        elif partition.topic == SHARE_STATE_TOPIC:
            self._share_states.elected(partition.index, ReplicatedLog(partition))
        self._share_partitions.elected(partition)

    def resigned(self, topic: str, index: int) -> None:
        """Notify the coordinators and the share partitions that this broker no longer leads a partition."""
        if topic == OFFSETS_TOPIC:
            self._groups.resigned(index)
        elif topic == SHARE_STATE_TOPIC:
            self._share_states.resigned(index)
        self._share_partitions.resigned(topic, index)
