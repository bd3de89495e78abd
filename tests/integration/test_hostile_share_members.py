"""Members of share groups that attack a broker: invalid acknowledgements, thousands of sessions, and locks that never
end. They are refused, change nothing, and hold up no other member for long."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from tests.cluster import RunningCluster, running_cluster, wait_until
from tests.raw_peer import Peer
from tests.share_conversations.playing import SETTINGS, Answer, Conversation
from tests.share_conversations.steps import (
    ACCEPT,
    RELEASE,
    Acknowledge,
    Fetch,
    HangUp,
    Produce,
    Range,
    Script,
    Step,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

FAR = 2**63 - 1
STRICT = 1
SESSIONS_MAX = 2_000
OPENED = 10_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(
        tmp_path_factory.mktemp("attacked"), quorum=1, brokers=1, settings=SETTINGS
    ) as running:
        yield running


def played(cluster: RunningCluster, name: str, *steps: Step, **settings: str) -> list[Answer]:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    return Conversation(cluster.bootstrap, Script(name, steps, named)).answers()


def code(answer: Answer) -> str:
    """Return the error of a request, or else of its only partition."""
    if answer["error"] != "NONE":
        return str(answer["error"])
    (row,) = answer["rows"]
    return str(row["acknowledged"])


INVALID: Sequence[Sequence[Range]] = (
    ((2, 1, ACCEPT),),
    ((0, 1, ACCEPT), (1, 2, ACCEPT)),
    ((1, 2, ACCEPT), (0, 0, ACCEPT)),
    ((-(2**63), FAR, ACCEPT),),
    ((0, FAR, ACCEPT),),
    ((FAR, FAR, ACCEPT),),
    ((0, 0, 5),),
    ((0, 0, -128),),
    ((0, 2, (ACCEPT, ACCEPT)),),
    ((0, 0, ACCEPT),) * 20_000,
    tuple((offset, offset, ACCEPT) for offset in range(20_000)),
)


def test_invalid_acknowledgements_change_nothing(cluster: RunningCluster) -> None:
    """Ranges that are crossed, in the wrong order, beyond 64 bits or too many, and types that do not exist."""
    answers = played(
        cluster,
        "invalid",
        Produce(3),
        Fetch(wait_ms=5_000),
        *(Acknowledge(tuple(ranges)) for ranges in INVALID),
        Acknowledge(((0, 0, ACCEPT),) * 30_000),
        Acknowledge(((0, 2, ACCEPT),)),
    )
    refused = ["INVALID_REQUEST"] * len(INVALID)
    assert [code(answer) for answer in answers[2:]] == [*refused, "POLICY_VIOLATION", "NONE"]


def test_a_hundred_thousand_ranges_end_the_connection(cluster: RunningCluster) -> None:
    for step in (Acknowledge(((0, 0, ACCEPT),) * 100_000), Fetch(ranges=((0, 0, RELEASE),) * 100_000)):
        with pytest.raises(ConnectionError):
            played(cluster, "huge", Produce(1), Fetch(wait_ms=5_000), step)
    assert "it has more than 100000 elements in its arrays" in cluster.brokers[0].log()


def test_foreign_partitions_are_refused_alone(cluster: RunningCluster) -> None:
    one = ((0, 0, ACCEPT),)
    answers = played(
        cluster,
        "foreign",
        Produce(2),
        Fetch(wait_ms=5_000),
        Fetch("m2"),
        Acknowledge(one, partition=7),
        Acknowledge(one, partition=-1),
        Acknowledge(one, unknown_topic=True),
        Acknowledge(one, "m2"),
        Acknowledge(((0, 1, ACCEPT),)),
    )
    assert [code(answer) for answer in answers[3:]] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "INVALID_RECORD_STATE",
        "NONE",
    ]


def opening() -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id="crowd", member_id=str(uuid.uuid4()), share_session_epoch=0, max_records=1, max_bytes=1
    )


def test_ten_thousand_sessions_are_too_many(cluster: RunningCluster) -> None:
    port = cluster.brokers[0].port
    codes: Counter[int] = Counter()
    with ExitStack() as stack:
        for _ in range(10):
            peer = Peer(port)
            stack.callback(peer.close)
            requests = [opening() for _ in range(OPENED // 10)]
            peer.send_together(*((request, 2) for request in requests))
            codes.update(peer.receive(request, 2).error_code for request in requests)
        limit = ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert codes == {ErrorCode.NONE: SESSIONS_MAX, limit: OPENED - SESSIONS_MAX}
    other = Peer(port)
    wait_until(lambda: not other.ask(opening(), 2).error_code, "a free session")
    other.close()


def test_a_member_that_never_acknowledges_is_reported_once(cluster: RunningCluster) -> None:
    answers = played(
        cluster,
        "silent",
        Produce(150),
        Fetch("silent", max_records=100, mode=STRICT, wait_ms=5_000),
        *[Fetch("m2", wait_ms=300) for _ in range(4)],
        HangUp("silent"),
        Fetch("m2", wait_ms=5_000, mode=STRICT),
        share__partition__max__record__locks="100",
    )
    assert answers[1]["rows"][0]["acquired"] == [[0, 99, 1]]
    assert not any(row["acquired"] for answer in answers[2:6] for row in answer["rows"])
    assert answers[-1]["rows"][0]["acquired"] == [[0, 99, 2]], "the others go on"
    silent = uuid.uuid5(uuid.NAMESPACE_OID, "silent")
    warnings = [line for line in cluster.brokers[0].log().splitlines() if f"Member {silent}" in line]
    assert len(warnings) == 1
    assert "100 records from offset 0 on are not acknowledged" in warnings[0]
