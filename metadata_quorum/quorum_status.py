"""The leader's answer to a broker that asks for the progress of all nodes.

All its offsets are Raft indices, which show a voter's missing entries exactly, including entries without records.
Brokers report metadata offsets; `OffsetMarks` translates them to Raft indices.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping

from ..protocol.messages.quorum_session import QuorumStatus, ReplicaStanding
from .liveness import BrokerSighting
from .raft.follower_contact import Replication

#: A broker that was silent for longer is no longer an observer; the time is Kafka's.
OBSERVER_SILENCE_S_MAX = 300.0
_UNKNOWN = -1


class OffsetMarks:
    """A table that translates recent metadata offsets to Raft indices. Pure."""

    def __init__(self, marks_max: int = 10_000) -> None:
        self._marks_max = marks_max
        self._offsets: list[int] = []
        self._indices: list[int] = []

    def note(self, metadata_offset: int, index: int) -> None:
        """Note that the image is at `metadata_offset` once all Raft entries up to `index` are applied. Neither number
        ever decreases."""
        if self._offsets and self._offsets[-1] == metadata_offset:
            self._indices[-1] = index
            return
        if len(self._offsets) >= 2 * self._marks_max:
            del self._offsets[: -self._marks_max]
            del self._indices[: -self._marks_max]
        self._offsets.append(metadata_offset)
        self._indices.append(index)

    def index_at(self, metadata_offset: int) -> int | None:
        """Return the last Raft index that an image at this metadata offset certainly includes; None for an offset older
        than the table."""
        position = bisect_right(self._offsets, metadata_offset)
        return self._indices[position - 1] if position else None


def status(
    question: int,
    node_id: int,
    term: int,
    voters: Iterable[int],
    replication: Replication,
    abstaining: Collection[int],
    brokers: Mapping[int, BrokerSighting],
    marks: OffsetMarks,
    wall_clock_ms: int,
) -> QuorumStatus:
    """Return the active leader's answer to a broker's question about progress: the position and lag of each voter and
    broker. `wall_clock_ms` counts from 1970. The leader itself is always caught up."""
    standings: list[ReplicaStanding] = []
    for voter in sorted(voters):
        if voter == node_id:
            standings.append(
                ReplicaStanding(
                    node_id=voter,
                    log_end_offset=replication.log_end,
                    heard_at=wall_clock_ms,
                    caught_up_at=wall_clock_ms,
                )
            )
        elif (known := replication.followers.get(voter)) is not None:
            standings.append(
                ReplicaStanding(
                    node_id=voter,
                    log_end_offset=_UNKNOWN if known.log_end is None else known.log_end,
                    heard_at=_before(wall_clock_ms, known.silent_s),
                    caught_up_at=_before(wall_clock_ms, known.caught_up_before_s),
                    abstains=voter in abstaining,
                )
            )
        else:
            standings.append(ReplicaStanding(node_id=voter, abstains=voter in abstaining))
    return QuorumStatus(
        question=question,
        leader_id=node_id,
        term=term,
        high_watermark=replication.high_watermark,
        voters=standings,
        observers=[
            _observer(broker_id, sighting, marks, wall_clock_ms)
            for broker_id, sighting in sorted(brokers.items())
            if sighting.silent_s <= OBSERVER_SILENCE_S_MAX
        ],
    )


def _observer(
    broker_id: int, sighting: BrokerSighting, marks: OffsetMarks, wall_clock_ms: int
) -> ReplicaStanding:
    index = marks.index_at(sighting.metadata_offset)
    return ReplicaStanding(
        node_id=broker_id,
        log_end_offset=_UNKNOWN if index is None else index + 1,
        heard_at=_before(wall_clock_ms, sighting.silent_s),
        caught_up_at=_before(wall_clock_ms, sighting.caught_up_before_s),
    )


def _before(wall_clock_ms: int, seconds: float | None) -> int:
    return _UNKNOWN if seconds is None else wall_clock_ms - round(seconds * 1000)
