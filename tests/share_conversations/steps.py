"""Steps of a conversation about a share group whose topic has one partition."""

from __future__ import annotations

from dataclasses import dataclass, field

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

Range = tuple[int, int, int | tuple[int, ...]]
"""First and last offset of acknowledged records, and their type or the type of each record."""


@dataclass(frozen=True)
class Produce:
    """Record batches of equal size. `ending` is the end of their transaction."""

    count: int
    batches: int = 1
    ending: str | None = None
    """`commit` or `abort`; None outside of a transaction."""


@dataclass(frozen=True)
class Fetch:
    """A ShareFetch. Without `epoch` it has the next epoch of the member's session."""

    member: str = "m1"
    ranges: tuple[Range, ...] = ()
    epoch: int | None = None
    max_records: int = 500
    mode: int = 0
    version: int = 2
    wait_ms: int = 400
    min_bytes: int = 1
    max_bytes: int = 1 << 20
    renews: bool = False
    partitions: tuple[int, ...] | None = None
    """Partitions to add to the session; None: the only partition if the request opens the session or acknowledges."""
    forgotten: tuple[int, ...] = ()
    unknown_topic: bool = False
    """True if the request names an id that no topic has."""


@dataclass(frozen=True)
class Acknowledge:
    """A ShareAcknowledge. Without `epoch` it has the next epoch of the member's session."""

    ranges: tuple[Range, ...] = ()
    member: str = "m1"
    epoch: int | None = None
    version: int = 2
    renews: bool = False
    partition: int = 0
    unknown_topic: bool = False


@dataclass(frozen=True)
class Pause:
    """Time that passes, such as the time of a lock."""

    seconds: float


@dataclass(frozen=True)
class Configure:
    """A changed setting of the group."""

    name: str
    value: str


@dataclass(frozen=True)
class Trim:
    """A DeleteRecords up to an offset."""

    offset: int


@dataclass(frozen=True)
class Leave:
    """A heartbeat with which the member that made the states of the group leaves it."""


@dataclass(frozen=True)
class Alter:
    """An AlterShareGroupOffsets."""

    offset: int


@dataclass(frozen=True)
class DeleteOffsets:
    """A DeleteShareGroupOffsets."""


@dataclass(frozen=True)
class Renew:
    """The topic is deleted, and another topic gets its name. The group subscribes again."""


@dataclass(frozen=True)
class HangUp:
    """A member closes its connection."""

    member: str = "m1"


@dataclass(frozen=True)
class Offsets:
    """A DescribeShareGroupOffsets, which is repeated until its start offset and lag stay."""


Step = (
    Produce
    | Fetch
    | Acknowledge
    | Pause
    | Configure
    | Trim
    | Leave
    | Alter
    | DeleteOffsets
    | Renew
    | HangUp
    | Offsets
)


@dataclass(frozen=True)
class Script:
    """A conversation."""

    name: str
    steps: tuple[Step, ...]
    settings: dict[str, str] = field(default_factory=dict)
    """Settings of the group besides its beginning at the first record."""
