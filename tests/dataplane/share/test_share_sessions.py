"""Share sessions: their epochs, their partitions, and their ends."""

from __future__ import annotations

import pytest

from ottla.dataplane.share.sessions import (
    CLOSING_EPOCH,
    EPOCH_MAX,
    OPENING_EPOCH,
    SessionKey,
    SharedPartition,
    ShareSession,
    ShareSessionCache,
    next_epoch,
)
from ottla.protocol.errors import ErrorCode, KafkaError

KEY, OTHER = SessionKey("g", "a"), SessionKey("g", "b")
FIRST, SECOND, THIRD = (SharedPartition(b"t" * 16, index) for index in range(3))


def opened(cache: ShareSessionCache, key: SessionKey = KEY, connection: str = "c") -> ShareSession:
    return cache.fetch(key, OPENING_EPOCH, connection, added=[FIRST, SECOND])


def test_epochs_follow_each_other() -> None:
    cache = ShareSessionCache()
    session = opened(cache)
    assert (session.epoch, list(session)) == (1, [FIRST, SECOND])
    assert cache.fetch(KEY, 1, "c") is session
    assert cache.acknowledge(KEY, 2) is session
    assert session.epoch == 3
    for epoch in (2, 4):
        with pytest.raises(KafkaError, match="is at epoch 3") as caught:
            cache.fetch(KEY, epoch, "c", added=[THIRD])
        assert caught.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (session.epoch, list(session)) == (3, [FIRST, SECOND])
    assert (next_epoch(EPOCH_MAX), next_epoch(0)) == (1, 1)


def test_partitions_are_added_and_forgotten() -> None:
    cache = ShareSessionCache()
    opened(cache)
    session = cache.fetch(KEY, 1, "c", added=[THIRD, FIRST], forgotten=[SECOND])
    assert list(session) == [FIRST, THIRD]
    assert SECOND not in session
    assert len(session) == 2


def test_a_new_partition_and_a_partition_after_an_error_are_answered_without_records() -> None:
    session = opened(ShareSessionCache())
    assert session.must_answer(FIRST)
    session.answered(FIRST, has_records=False, is_error=False)
    assert not session.must_answer(FIRST)
    session.answered(FIRST, has_records=False, is_error=True)
    assert session.must_answer(FIRST)
    session.answered(THIRD, has_records=True, is_error=False)
    assert THIRD not in session


def test_a_partition_whose_records_were_sent_comes_last() -> None:
    session = opened(ShareSessionCache())
    session.answered(FIRST, has_records=True, is_error=False)
    assert list(session) == [SECOND, FIRST]


@pytest.mark.parametrize("epoch", [1, CLOSING_EPOCH])
def test_an_unknown_session_is_refused(epoch: int) -> None:
    cache = ShareSessionCache()
    opened(cache, OTHER)
    for request in (lambda: cache.fetch(KEY, epoch, "c"), lambda: cache.acknowledge(KEY, epoch)):
        with pytest.raises(KafkaError) as caught:
            request()
        assert caught.value.code is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_an_opening_request_has_no_acknowledgements() -> None:
    cache = ShareSessionCache()
    session = opened(cache)
    with pytest.raises(KafkaError) as caught:
        cache.fetch(KEY, OPENING_EPOCH, "c", added=[THIRD], has_acknowledgements=True)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert cache.fetch(KEY, 1, "c") is session
    with pytest.raises(KafkaError) as caught:
        cache.acknowledge(KEY, OPENING_EPOCH)
    assert caught.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_the_closing_request_still_has_its_session_and_adds_no_partition() -> None:
    cache = ShareSessionCache()
    session = opened(cache)
    assert cache.fetch(KEY, CLOSING_EPOCH, "c") is session
    with pytest.raises(KafkaError) as caught:
        cache.fetch(KEY, CLOSING_EPOCH, "c", added=[THIRD])
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    closed = cache.close(KEY)
    assert closed is session
    assert (list(session), len(cache), cache.close(KEY)) == ([FIRST, SECOND], 0, None)


def test_a_member_that_opens_a_session_again_replaces_its_own() -> None:
    cache = ShareSessionCache(sessions_max=1)
    first = opened(cache)
    assert opened(cache) is not first
    with pytest.raises(KafkaError, match="sessions allows 1") as caught:
        opened(cache, OTHER)
    assert caught.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    cache.close(KEY)
    opened(cache, OTHER)


def test_a_lost_connection_closes_its_own_sessions() -> None:
    cache = ShareSessionCache()
    session, other = opened(cache), opened(cache, OTHER, "d")
    assert cache.close_connection("c") == [session]
    assert cache.close_connection("c") == []
    assert cache.acknowledge(OTHER, 1) is other
    assert len(cache) == 1
