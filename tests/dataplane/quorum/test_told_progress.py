"""The quorum's leader is told where logs end, each time that is news, and everything when another node leads."""

from __future__ import annotations

from ottla.dataplane.quorum.progress import Progress, ToldProgress

A, B = b"a" * 16, b"b" * 16


def told(progress: ToldProgress) -> list[tuple[bytes, int, int, int]]:
    return [(one.topic_id, one.partition, one.leader_epoch, one.log_end_offset) for one in progress.news()]


def test_what_moved_is_told_once() -> None:
    logs: dict[tuple[bytes, int], tuple[int, int]] = {(A, 0): (1, 5), (A, 1): (1, 0), (B, 0): (2, 7)}
    progress = ToldProgress(lambda: [(key, *end) for key, end in logs.items()])
    assert told(progress) == [(A, 0, 1, 5), (A, 1, 1, 0), (B, 0, 2, 7)]
    assert told(progress) == []
    logs[A, 1] = (1, 3)
    logs[B, 0] = (3, 7)  # cut, and written to the same end by another leader
    assert told(progress) == [(A, 1, 1, 3), (B, 0, 3, 7)]
    progress.clear()
    assert len(told(progress)) == 3


def test_a_log_that_went_is_told_anew_when_it_is_back() -> None:
    logs: list[Progress] = [((A, 0), 1, 5), ((B, 0), 1, 5)]
    progress = ToldProgress(lambda: logs)
    assert len(told(progress)) == 2
    gone = logs.pop()
    assert told(progress) == []
    logs.append(gone)
    assert told(progress) == [(B, 0, 1, 5)]
