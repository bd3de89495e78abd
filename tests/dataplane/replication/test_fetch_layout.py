"""The bytes of brokers' fetches equal those of the generic codec, which knows every form."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.replication.fetch_codec import (
    decode_answer,
    decode_any_answer,
    encode_answer,
    fetch_of,
    response_of,
)
from ottla.dataplane.replication.fetch_layout import (
    ANSWER_END,
    VERSION,
    read_answer,
    read_fetch,
    write_fetch,
    write_head,
)
from ottla.dataplane.replication.fetch_values import (
    FetchPosition,
    FollowerFetch,
    PartitionAnswer,
    SessionAnswer,
)
from ottla.dataplane.replication.roles.follower import EpochEnd
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.protocol.messages.headers import decode_client_id, encode_request, response_header
from ottla.protocol.wire.codec import decode_from, encode_parts

INT32 = st.integers(-1, 2**31 - 1)
INT64 = st.integers(-1, 2**63 - 1)
KEYS = st.tuples(st.sampled_from([bytes([n]) * 16 for n in range(3)]), st.integers(0, 2**31 - 1))
FETCHES = st.builds(
    FollowerFetch,
    st.integers(0, 2**31 - 1),
    INT64,
    INT32,
    INT32,
    st.lists(st.builds(FetchPosition, KEYS, INT32, INT64, INT32, INT64, INT32), max_size=140),
    st.lists(KEYS, max_size=140),
    INT32,
)


def answers(*, diverge: bool, most: int = 140) -> st.SearchStrategy[SessionAnswer]:
    diverging = st.none() | st.builds(EpochEnd, st.integers(0, 2**31 - 1), INT64) if diverge else st.none()
    parts = st.builds(
        PartitionAnswer,
        KEYS,
        st.sampled_from([ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER]),
        INT64,
        INT64,
        diverging,
        st.none() | st.binary(max_size=300).map(memoryview),
    )
    errors = st.sampled_from([ErrorCode.NONE, ErrorCode.FETCH_SESSION_ID_NOT_FOUND])
    return st.builds(SessionAnswer, INT32, st.lists(parts, max_size=most), errors)


def by_the_generic_codec(fetch: FollowerFetch) -> bytes:
    topics: dict[bytes, FetchTopic] = {}
    for at in fetch.positions:
        topics.setdefault(at.key[0], FetchTopic(topic_id=at.key[0])).partitions.append(
            FetchPartition(
                partition=at.key[1],
                current_leader_epoch=at.leader_epoch,
                fetch_offset=at.fetch_offset,
                last_fetched_epoch=at.last_fetched_epoch,
                log_start_offset=at.log_start_offset,
                partition_max_bytes=at.max_bytes,
            )
        )
    forgotten: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in fetch.forgotten:
        forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
    message = FetchRequest(
        replica_state=ReplicaState(replica_id=fetch.broker_id, replica_epoch=fetch.broker_epoch),
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=fetch.max_bytes,
        session_id=fetch.session_id,
        session_epoch=fetch.session_epoch,
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )
    return encode_request(message, VERSION, 7, f"broker-{fetch.broker_id}")


def frame_of(answer: SessionAnswer, parts: list[object]) -> bytes:
    return response_header(1, VERSION, 7) + b"".join(bytes(part) for part in parts)  # type: ignore[call-overload]


def plain(answer: SessionAnswer) -> tuple[object, ...]:
    rows = [
        (
            partition.key,
            partition.error,
            partition.high_watermark,
            partition.log_start_offset,
            partition.diverging,
            bytes(partition.records or b""),
        )  # type: ignore[arg-type]
        for partition in answer.partitions
    ]
    return answer.session_id, answer.error, sorted(rows, key=repr)


@given(FETCHES)
def test_a_request_is_what_the_generic_codec_writes_and_reads(fetch: FollowerFetch) -> None:
    frame = bytes(write_fetch(fetch, 500, 7))
    assert frame == by_the_generic_codec(fetch)
    client_id, offset = decode_client_id(memoryview(frame)[4:], 1, VERSION)
    message, _ = decode_from(FetchRequest, frame[4:], VERSION, offset)
    assert client_id == f"broker-{fetch.broker_id}"
    found = fetch_of(message, fetch.broker_id, fetch.broker_epoch)
    assert sorted(map(repr, found.positions)) == sorted(map(repr, fetch.positions))


def header_end(fetch: FollowerFetch) -> int:
    """Return the header's end: after API key, version, correlation id, client id and no tagged fields."""
    return 2 + 2 + 4 + 2 + len(f"broker-{fetch.broker_id}") + 1


def as_read(fetch: FollowerFetch) -> FollowerFetch:
    return fetch._replace(positions=list(fetch.positions), forgotten=list(fetch.forgotten))


@given(FETCHES.filter(lambda fetch: not fetch.forgotten and len(fetch.positions) < 100))
def test_the_usual_request_is_read_the_short_way(fetch: FollowerFetch) -> None:
    frame = memoryview(write_fetch(fetch, 500, 7))[4:]
    message, _ = decode_from(FetchRequest, frame, VERSION, header_end(fetch))
    read = read_fetch(frame, header_end(fetch))
    assert read is not None
    assert (as_read(read[0]), read[1]) == (fetch_of(message, fetch.broker_id, fetch.broker_epoch), 500)


FEW = st.integers(0, 3).flatmap(
    lambda most: st.builds(
        FollowerFetch,
        st.integers(0, 2**31 - 1),
        INT64,
        INT32,
        INT32,
        st.lists(st.builds(FetchPosition, KEYS, INT32, INT64, INT32, INT64, INT32), max_size=most),
        st.lists(KEYS, max_size=most // 3),
        INT32,
    )
)


@given(FEW, st.data())
def test_a_request_of_another_form_is_left_to_the_generic_codec(
    fetch: FollowerFetch, data: st.DataObject
) -> None:
    """A cut, or a byte that is another: the short way says the same as the generic codec, or nothing."""
    start = header_end(fetch)
    frame = bytearray(write_fetch(fetch, 500, 7)[4:])
    if data.draw(st.booleans()):
        del frame[data.draw(st.integers(start, len(frame) - 1)) :]
    else:
        frame[data.draw(st.integers(start, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    read = read_fetch(memoryview(bytes(frame)), start)
    if read is None:
        return
    message, end = decode_from(FetchRequest, bytes(frame), VERSION, start)
    state = message.replica_state
    assert end == len(frame)
    assert (as_read(read[0]), read[1]) == (
        fetch_of(message, state.replica_id, state.replica_epoch),
        message.max_wait_ms,
    )


@given(answers(diverge=True))
def test_an_answer_is_what_the_generic_codec_writes(answer: SessionAnswer) -> None:
    assert frame_of(answer, encode_answer(answer, VERSION)) == frame_of(
        answer, encode_parts(response_of(answer), VERSION)
    )


@given(answers(diverge=False, most=1).filter(lambda answer: len(answer.partitions) == 1))
def test_an_answer_about_one_partition_is_what_the_generic_codec_writes(answer: SessionAnswer) -> None:
    records = bytes(answer.partitions[0].records or b"")  # type: ignore[arg-type]
    frame = write_head(7, answer, len(records)) + records + ANSWER_END
    body = frame_of(answer, encode_parts(response_of(answer), VERSION))
    assert frame == len(body).to_bytes(4, "big") + body


@given(answers(diverge=True))
def test_an_answer_is_read_as_it_was_given(answer: SessionAnswer) -> None:
    frame = memoryview(frame_of(answer, encode_answer(answer, VERSION)))
    correlation_id, found = decode_answer(frame)
    assert (correlation_id, plain(found)) == (7, plain(answer))


@given(answers(diverge=False).filter(lambda answer: len(answer.partitions) < 100))
def test_the_usual_answer_takes_the_short_way(answer: SessionAnswer) -> None:
    assert read_answer(memoryview(frame_of(answer, encode_answer(answer, VERSION)))) is not None


@given(st.sampled_from([1, 140]).flatmap(lambda most: answers(diverge=False, most=most)), st.data())
def test_what_is_no_answer_is_refused_as_the_generic_codec_does(
    answer: SessionAnswer, data: st.DataObject
) -> None:
    """The short cut gives the generic codec's result for a truncated or changed answer, or none."""
    frame = bytearray(frame_of(answer, encode_parts(response_of(answer), VERSION)))
    if data.draw(st.booleans()):
        del frame[data.draw(st.integers(0, len(frame) - 1)) :]
    else:
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    view = memoryview(bytes(frame))
    short = read_answer(view)
    if short is None:
        return
    generic = decode_any_answer(view)
    assert (short[0], plain(short[1])) == (generic[0], plain(generic[1]))
