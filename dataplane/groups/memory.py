"""The memory that groups may take: their members, the members' metadata, and committed offsets.

The principal and the address of the client that sends a request claim the memory. A request that does not fit is
refused, and existing groups, members and offsets stay. Sizes are estimates of what Python takes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..runtime.retained_bytes import RetainedBytes, RetainedClaim
from .classic.membership import JoinRequest
from .consumer.group import ConsumerGroup
from .consumer.member import ConsumerMember, MemberHeartbeat
from .group_table import AnyGroup
from .offsets import CommittedOffset, TopicPartition
from .share.group import ShareGroup
from .share.member import ShareHeartbeat, ShareMember

GROUP_BYTES_MAX: Final = 512 * 1024 * 1024
"""Memory for all groups that a broker coordinates, with their members and assignments."""
OFFSET_BYTES_MAX: Final = 1024 * 1024 * 1024
"""Memory for all committed offsets of these groups: some two million."""
SUBSCRIPTION_BYTES_MAX: Final = 4 * 1024 * 1024
"""Memory for all subscriptions in one JoinGroup. The log of groups takes batches of 1 MiB by default."""

_GROUP_BYTES: Final = 2000
_MEMBER_BYTES: Final = 1500
_PARTITION_BYTES: Final = 400
"""Memory for a partition that a consumer group assigns: its target, its owner, and the epoch since when."""
_OFFSET_BYTES: Final = 500


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """The memory budgets of one broker's groups: one for groups with their members, one for committed offsets."""

    groups: RetainedBytes = field(default_factory=lambda: RetainedBytes(GROUP_BYTES_MAX))
    offsets: RetainedBytes = field(default_factory=lambda: RetainedBytes(OFFSET_BYTES_MAX))

    def of_shard(self) -> GroupMemory:
        """Return a part of these budgets for one shard. All that the shard claims is released by `end`."""
        return GroupMemory(self.groups.part(), self.offsets.part())

    def end(self) -> None:
        """Release all memory that the shard with this part of the budgets has claimed."""
        self.groups.end()
        self.offsets.end()

    # ------------------------------------------------------------ groups and members

    def group(self, group_id: str, holders: tuple[str, ...]) -> RetainedClaim:
        """Claim memory for a new group, to the account of `holders` (principal and address). Raises KafkaError
        GROUP_MAX_SIZE_REACHED."""
        return self._claimed(_GROUP_BYTES + getsizeof(group_id), holders)

    def joining(
        self, request: JoinRequest, holders: tuple[str, ...], known: RetainedClaim | None
    ) -> RetainedClaim:
        """Claim memory for a member of the classic protocol, to the account of `holders`. The claim replaces the
        member's claim `known`.

        Raises KafkaError GROUP_MAX_SIZE_REACHED.
        """
        subscriptions = sum(getsizeof(name) + len(data) for name, data in request.protocols)
        if subscriptions > SUBSCRIPTION_BYTES_MAX:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"A member subscribes with {subscriptions} bytes, at most {SUBSCRIPTION_BYTES_MAX} are allowed.",
            )
        names = (request.member_id, request.instance_id, request.client_id, request.client_host)
        # The new member id contains the instance id or the client id.
        return self._claimed(_MEMBER_BYTES + subscriptions + 2 * _sizes(names), holders, known)

    def heard(
        self, beat: MemberHeartbeat, holders: tuple[str, ...], known: ConsumerMember | None
    ) -> RetainedClaim | None:
        """Claim memory for the member that a heartbeat describes, to the account of `holders`; return None if the
        heartbeat has nothing to store.

        Raises KafkaError GROUP_MAX_SIZE_REACHED.
        """
        claim = None if known is None else known.claim
        if claim is not None and beat.topics is None and not beat.regex and not beat.rack_id:
            return None
        names = (beat.member_id, beat.instance_id, beat.rack_id, beat.client_id, beat.client_host, beat.regex)
        size = _MEMBER_BYTES + _sizes((*names, beat.principal, beat.assignor)) + _sizes(beat.topics or ())
        if claim is not None and beat.topics is None:
            size = max(size, claim.size)
        return self._claimed(size, holders, claim)

    def heard_in_share_group(self, beat: ShareHeartbeat, known: ShareMember | None) -> RetainedClaim | None:
        """Claim memory for the member that a heartbeat describes; return None if the heartbeat has nothing to store.

        Raises KafkaError GROUP_MAX_SIZE_REACHED.
        """
        claim = None if known is None else known.claim
        if claim is not None and beat.topics is None and not beat.rack_id:
            return None
        names = (beat.member_id, beat.rack_id, beat.client_id, beat.client_host, beat.principal)
        size = _MEMBER_BYTES + _sizes(names) + _sizes(beat.topics or ())
        if claim is not None and beat.topics is None:
            size = max(size, claim.size)
        return self._claimed(size, beat.holders, claim)

    def assigning(
        self, assignments: Mapping[str, bytes], holders: tuple[str, ...], known: RetainedClaim | None
    ) -> RetainedClaim:
        """Claim memory for the assignments that a classic group's leader sends, to the account of `holders`. Raises
        KafkaError GROUP_MAX_SIZE_REACHED."""
        return self._claimed(sum(map(getsizeof, assignments.values())), holders, known)

    def assigned(
        self, group_id: str, partitions: int, holders: tuple[str, ...], known: RetainedClaim | None
    ) -> RetainedClaim:
        """Claim memory for a consumer group that assigns this number of partitions, to the account of `holders`. The
        claim replaces `known`, and never shrinks.

        Raises KafkaError GROUP_MAX_SIZE_REACHED.
        """
        size = _GROUP_BYTES + getsizeof(group_id) + _PARTITION_BYTES * partitions
        return self._claimed(max(size, 0 if known is None else known.size), holders, known)

    def count_restored(self, group: AnyGroup) -> None:
        """Count the memory of a group and its members that were read from the log, beyond the budget if need be. No
        client's account is charged."""
        partitions = _assigned_partitions(group)
        size = _GROUP_BYTES + getsizeof(group.group_id) + _PARTITION_BYTES * partitions
        group.claim = self.groups.claim_anyway(size)
        for member in group.members.values():
            said = _MEMBER_BYTES + _sizes((member.member_id, member.client_id))
            if isinstance(member, ShareMember):
                said += _sizes((*member.topics, member.rack_id))
            elif isinstance(member, ConsumerMember):
                said += _sizes((*member.topics, member.rack_id, member.regex, member.instance_id))
            else:
                said += _sizes((member.instance_id,))
                said += len(member.assignment) + sum(len(data) for _, data in member.protocols)
            member.claim = self.groups.claim_anyway(said)

    def _claimed(
        self, size: int, holders: tuple[str, ...], known: RetainedClaim | None = None
    ) -> RetainedClaim:
        claim = self.groups.claim(size, *holders, in_place_of=known)
        if claim is None:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The groups of this broker may take {self.groups.bytes_max} bytes of memory, and those of one "
                f"principal or address {self.groups.share_max}: {size} more do not fit.",
            )
        return claim

    # ------------------------------------------------------------ offsets

    def committing(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        holders: tuple[str, ...],
        known: Mapping[TopicPartition, CommittedOffset],
    ) -> bool:
        """Claim memory for each offset of a commit, in place of the `known` offset of its partition. Return whether all
        offsets fit."""
        for partition, offset in offsets.items():
            before = known.get(partition)
            claim = self.offsets.claim(
                _size_of(offset), *holders, in_place_of=None if before is None else before.claim
            )
            if claim is None:
                return False
            offset.hold(claim)
        return True

    def count(self, offset: CommittedOffset) -> None:
        """Count the memory of an offset that was read from the log, beyond the budget if need be."""
        offset.hold(self.offsets.claim_anyway(_size_of(offset)))


def _assigned_partitions(group: AnyGroup) -> int:
    """Return how many partitions the group has given to its members, each as often as it has members."""
    match group:
        case ConsumerGroup():
            return len(group.owners)
        case ShareGroup():
            return sum(len(partitions) for partitions in group.target.values())
        case _:
            return 0


def _size_of(offset: CommittedOffset) -> int:
    return _OFFSET_BYTES + getsizeof(offset.metadata)


def _sizes(texts: Iterable[str | None]) -> int:
    return sum(getsizeof(text) for text in texts if text is not None)
