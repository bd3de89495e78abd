"""Transactions on a controller, and each broker's knowledge of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from ottla.dataplane.quorum.image_follower import ImageFollower
from ottla.metadata_quorum.state.controller import Applied
from ottla.protocol.cluster.cluster_image import ClusterImage
from ottla.protocol.cluster.transaction_table import Phase, Place, TransactionMetadata, by_topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import quorum_commands as q
from ottla.protocol.messages import transaction_commands as t
from ottla.protocol.messages.command import Command, PlainResult
from ottla.protocol.messages.metadata_records import encode_record
from ottla.protocol.messages.partition_commands import (
    ElectionPartition,
    ElectionType,
    ElectLeaders,
    ElectLeadersResult,
)
from ottla.protocol.messages.quorum_session import FeedRecords
from ottla.protocol.messages.reassignment_commands import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    TopicReassignment,
    WantedReplicas,
)

from .harness import ControllerWithBrokers, assigned

Identity = tuple[int, int]
"""Producer id and epoch."""


def push(broker: int, offset: int, applied: Applied) -> FeedRecords:
    """Return the feed's records for a broker from a command that was applied at this offset."""
    return FeedRecords(
        first_offset=offset,
        end_offset=offset + len(applied.records),
        records=[
            encode_record(record) for scope, record in applied.records if scope is None or broker in scope
        ],
    )


class Transactions(ControllerWithBrokers):
    """Three brokers, and topic "t", whose partition `index` is on brokers `index % 3 + 1` and the next one.

    Each broker has an image, built from its part of the feed.
    """

    def __init__(self, partitions: int = 4) -> None:
        self.followers = {broker: ImageFollower(broker) for broker in (1, 2, 3)}
        self.images = {broker: follower.image for broker, follower in self.followers.items()}
        self.connections = count(1)
        self._keeps_decoded = False
        super().__init__(3)
        self.create(assigned("t", *([index % 3 + 1, (index + 1) % 3 + 1] for index in range(partitions))))

    def apply(self, command: Command[Any], session: q.Session | None = None) -> Applied:
        """Apply a command. Every second transaction command is decoded ahead, as the leader does with all of them."""
        decoded: tuple[q.Session | None, Command[Any]] | None = None
        encoded = q.encode_command(session, command)
        if isinstance(command, t.AddToTransaction | t.EndTransaction | t.ReportMarkers):
            self._keeps_decoded = not self._keeps_decoded
            decoded = q.decode_command(encoded) if self._keeps_decoded else None
        if decoded is not None:
            self.machine.keep_decoded(encoded, decoded)
        applied = super().apply(command, session)
        assert decoded is None or decoded == q.decode_command(encoded), "nothing changes a command"
        for broker, follower in self.followers.items():
            follower.records(push(broker, follower.image.offset, applied))
        return applied

    def places(self, *indexes: int, topic: str = "t") -> set[Place]:
        return {(self.topic_id(topic), index) for index in indexes}

    def state(self, name: str = "x") -> TransactionMetadata:
        return self.machine.image.transactions.by_id[name]

    # Commands of a client that makes a connection for each, to a broker that has seen everything

    def init(
        self, name: str = "x", known: Identity | None = None, broker: int = 1, *, recovers: bool = True
    ) -> t.InitTransactionalIdResult:
        """Initialise a producer. `recovers`: the client can request the next epoch of its producer id."""
        producer_id, epoch = known or (-1, -1)
        command = t.InitTransactionalId(
            transactional_id=name,
            timeout_ms=1000,
            producer_id=producer_id,
            producer_epoch=epoch,
            origin=self.origin(broker),
            recovers=recovers,
        )
        return self.do(command, t.InitTransactionalIdResult)

    def begin(self, name: str = "x", broker: int = 1) -> Identity:
        """Return the identity of a producer that has begun."""
        found = self.init(name, broker=broker)
        assert found.error_code == ErrorCode.NONE, found
        return found.producer_id, found.producer_epoch

    def add(
        self, who: Identity, places: Iterable[Place], name: str = "x", broker: int = 1
    ) -> t.AddToTransactionResult:
        command = t.AddToTransaction(
            transactional_id=name,
            producer_id=who[0],
            producer_epoch=who[1],
            topics=by_topic(places),
            origin=self.origin(broker),
        )
        return self.do(command, t.AddToTransactionResult)

    def find_or_begin(self, version: int = -1, name: str = "x") -> t.FindOrBeginResult:
        command = t.FindOrBegin(
            transactional_id=name, app_version=version, timeout_ms=2000, now_ms=self.machine.image.offset
        )
        return self.do(command, t.FindOrBeginResult)

    def end(
        self,
        who: Identity,
        *,
        commits: bool = True,
        bumps: bool = True,
        name: str = "x",
        writers: Iterable[Identity] = (),
        number: int = -1,
        version: int = -1,
        broker: int = 1,
    ) -> t.EndTransactionResult:
        command = t.EndTransaction(
            transactional_id=name,
            producer_id=who[0],
            producer_epoch=who[1],
            commits=commits,
            bumps_epoch=bumps,
            writers=[
                t.ChosenWriter(producer_id=producer_id, producer_epoch=epoch)
                for producer_id, epoch in writers
            ],
            number=number,
            app_version=version,
            origin=self.origin(broker),
        )
        return self.do(command, t.EndTransactionResult)

    def join(self, who: Identity, name: str = "x", number: int | None = None) -> t.JoinTransactionResult:
        command = t.JoinTransaction(
            transactional_id=name,
            producer_id=who[0],
            producer_epoch=who[1],
            number=self.state(name).number if number is None else number,
        )
        return self.do(command, t.JoinTransactionResult)

    def origin(self, broker: int) -> t.ClientOrigin:
        """Return a new connection."""
        return t.ClientOrigin(
            broker_id=broker,
            broker_epoch=self.epoch(broker),
            connection=next(self.connections),
            birth=self.machine.image.offset,
            now_ms=self.machine.image.offset,
        )

    # Leaders

    def write_markers(
        self, places: Iterable[Place] | None = None, *, leader_epoch: int | None = None
    ) -> None:
        """Report markers as the leaders of these partitions, or of all, for all writers."""
        table = self.machine.image.transactions
        owed = {place for name in table.decided for _, place in table.by_id[name].outstanding}
        for topic_id, index in sorted(owed if places is None else owed & set(places)):
            state = self.machine.image.topics_by_id[topic_id].partitions[index]
            if state.leader < 0:
                continue
            here = table.at((topic_id, index)).items()
            written = t.WrittenMarkers(
                topic_id=topic_id,
                partition=index,
                leader_epoch=state.leader_epoch if leader_epoch is None else leader_epoch,
                writers=[
                    t.WrittenMarker(producer_id=producer_id, number=transaction.number)
                    for producer_id, transaction in here
                    if transaction.phase.is_decided
                ],
            )
            command = t.ReportMarkers(
                broker_id=state.leader, broker_epoch=self.epoch(state.leader), partitions=[written]
            )
            self.do(command, PlainResult)

    def elect_uncleanly(self, topic: str, index: int = 0) -> None:
        place = ElectionPartition(topic_id=self.topic_id(topic), partition=index)
        command = ElectLeaders(election_type=ElectionType.UNCLEAN, partitions=[place])
        elected = self.do(command, ElectLeadersResult)
        assert elected.partitions[0].error_code == ErrorCode.NONE, elected

    def move(self, index: int, replicas: list[int] | None, topic: str = "t") -> None:
        """Move a partition to these brokers; None cancels the move."""
        wanted = TopicReassignment(
            name=topic, partitions=[WantedReplicas(partition=index, replicas=replicas)]
        )
        self.do(AlterPartitionReassignments(topics=[wanted]), AlterPartitionReassignmentsResult)

    def check(self) -> None:
        """Check that the controller is consistent, and that each broker knows all the controller knows about
        transactions on its replicas.
        """
        self.machine.check()
        table = self.machine.image.transactions
        for broker, image in self.images.items():
            image.transactions.check()
            for topic in self.machine.image.topics.values():
                for index, partition in topic.partitions.items():
                    if broker in partition.replicas:
                        self._check_place(broker, image, (topic.id, index))
        assert all(image.offset == self.machine.image.offset for image in self.images.values())
        assert table.next_commit_index >= max(
            (transaction.commit_index for transaction in table.by_id.values()), default=0
        )

    def _check_place(self, broker: int, image: ClusterImage, place: Place) -> None:
        ours, theirs = self.machine.image.transactions.at(place), image.transactions.at(place)
        assert ours.keys() == theirs.keys(), f"broker {broker} knows of {theirs} at {place}, there are {ours}"
        for producer_id, transaction in ours.items():
            known = theirs[producer_id]
            assert known == transaction or _but_for_the_pool(known, transaction), (broker, known, transaction)


def _but_for_the_pool(known: TransactionMetadata, transaction: TransactionMetadata) -> bool:
    """Return the transaction without the pool, which brokers do not need."""
    pool, known.pool = known.pool, transaction.pool
    try:
        return known == transaction
    finally:
        known.pool = pool


OVER = (Phase.EMPTY, Phase.COMPLETE_COMMIT, Phase.COMPLETE_ABORT)


def identity(
    found: t.InitTransactionalIdResult | t.EndTransactionResult | t.JoinTransactionResult,
) -> Identity:
    """Return the identity in a successful answer."""
    assert found.error_code == ErrorCode.NONE, found
    return found.producer_id, found.producer_epoch
