"""The quorum's leader gets each change of log ends, and everything when another node leads."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.quorum.log_end_reports import LogEnd, LogKey, ReportedLogEnds

A, B = b"a" * 16, b"b" * 16
KEYS: list[LogKey] = [(topic_id, number) for topic_id in (A, B) for number in range(3)]


class Logs(dict[LogKey, LogEnd]):
    """The existing logs, and the changed ones."""

    def __init__(self, logs: dict[LogKey, LogEnd]) -> None:
        super().__init__(logs)
        self.noted = dict.fromkeys(logs)

    def all(self) -> Iterable[LogKey]:
        return list(self)

    def moved(self) -> Iterable[LogKey]:
        noted, self.noted = self.noted, {}
        return noted

    def end_of(self, key: LogKey) -> LogEnd | None:
        return self.get(key)

    def change(self, key: LogKey, end: LogEnd | None) -> None:
        """Change a log's end; None removes the log."""
        self.noted[key] = None
        self.pop(key, None)
        if end is not None:
            self[key] = end


def told(
    reported: ReportedLogEnds, image_offset: int = 1, at_most: int | None = None
) -> list[tuple[bytes, int, int, int]]:
    news = reported.next_piece(image_offset, at_most)
    return [
        (progress.topic_id, progress.partition, progress.leader_epoch, progress.log_end_offset)
        for progress in news
    ]


def test_what_moved_is_told_once() -> None:
    logs = Logs({(A, 0): (1, 5), (A, 1): (1, 0), (B, 0): (2, 7)})
    reported = ReportedLogEnds(lambda: logs)
    assert told(reported) == [(A, 0, 1, 5), (A, 1, 1, 0), (B, 0, 2, 7)]
    assert told(reported) == []
    logs.change((A, 1), (1, 3))
    logs.change((B, 0), (3, 7))  # cut, and written to the same end by another leader
    logs.change((A, 0), (1, 5))  # only its high watermark moved
    assert told(reported) == [(A, 1, 1, 3), (B, 0, 3, 7)]
    reported.clear()
    assert len(told(reported)) == 3


def test_a_log_that_went_is_told_anew_when_it_is_back() -> None:
    logs = Logs({(A, 0): (1, 5), (B, 0): (1, 5)})
    reported = ReportedLogEnds(lambda: logs)
    assert len(told(reported)) == 2
    logs.change((B, 0), None)
    assert told(reported) == []
    logs.change((B, 0), (1, 5))
    assert told(reported) == [(B, 0, 1, 5)]


ENDS = st.one_of(st.none(), st.tuples(st.integers(0, 2), st.integers(0, 2)))
CHANGES = st.lists(st.one_of(st.sampled_from(["tell", "clear"]), st.tuples(st.sampled_from(KEYS), ENDS)))


@given(CHANGES)
def test_as_much_is_told_as_by_a_walk_over_all_logs(
    changes: list[str | tuple[LogKey, LogEnd | None]],
) -> None:
    logs = Logs({(A, 0): (0, 0)})
    reported = ReportedLogEnds(lambda: logs)
    known: dict[LogKey, LogEnd] = {}
    for change in [*changes, "tell"]:
        if change == "clear":
            reported.clear()
            known = {}
        elif change == "tell":
            expected = {(*key, *end) for key, end in logs.items() if known.get(key) != end}
            news = told(reported)
            assert (len(news), set(news)) == (len(expected), expected)
            known = dict(logs)
        else:
            assert not isinstance(change, str)
            logs.change(*change)


# ---------------------------------------------------------------- in pieces


def test_many_logs_are_told_in_pieces_and_then_as_of_the_image_of_the_first() -> None:
    logs = Logs(dict.fromkeys(KEYS, (1, 5)))
    reported = ReportedLogEnds(lambda: logs)
    assert len(told(reported, 10, 4)) == 4
    assert (reported.is_amid_round, reported.reported_offset) == (True, 0)
    logs.change(KEYS[0], (1, 6))
    assert told(reported, 11, 4) == [(*key, 1, 5) for key in KEYS[4:]]
    assert (reported.is_amid_round, reported.reported_offset) == (False, 10)
    assert told(reported, 12, 4) == [(*KEYS[0], 1, 6)]
    assert reported.reported_offset == 12


def test_a_round_ends_however_fast_logs_move() -> None:
    """A broker under load would otherwise never have reported everything."""
    logs = Logs(dict.fromkeys(KEYS, (1, 0)))
    reported = ReportedLogEnds(lambda: logs)
    for image_offset in range(1, 50):
        for key in KEYS:
            logs.change(key, (1, image_offset))
        told(reported, image_offset, 2)
        assert image_offset - reported.reported_offset <= len(KEYS)


def test_another_leader_is_told_from_the_beginning() -> None:
    logs = Logs(dict.fromkeys(KEYS, (1, 5)))
    reported = ReportedLogEnds(lambda: logs)
    told(reported, 10, 100)
    logs.change(KEYS[1], (1, 6))
    told(reported, 11, 100)
    assert reported.reported_offset == 11
    reported.clear()
    assert reported.reported_offset == 0
    assert len(told(reported, 11, 4)) == 4
    assert reported.reported_offset == 0
    told(reported, 12, 4)
    assert reported.reported_offset == 11


STEPS = st.lists(
    st.one_of(st.integers(1, 4), st.just("clear"), st.tuples(st.sampled_from(KEYS), ENDS)), max_size=60
)


@given(STEPS)
def test_the_leader_knows_all_that_was_so_at_the_offset_it_is_told(
    steps: list[int | str | tuple[LogKey, LogEnd | None]],
) -> None:
    """The image moves with each step. A log without changes since that offset ends where the leader thinks."""
    logs = Logs({(A, 0): (0, 0)})
    changed_at: dict[LogKey, int] = {(A, 0): 0}
    reported = ReportedLogEnds(lambda: logs)
    known: dict[LogKey, LogEnd] = {}
    for image_offset, step in enumerate(steps, 1):
        if isinstance(step, int):
            for topic_id, index, leader_epoch, end in told(reported, image_offset, step):
                known[topic_id, index] = (leader_epoch, end)
        elif isinstance(step, str):
            reported.clear()
            known = {}
        else:
            logs.change(*step)
            changed_at[step[0]] = image_offset
        settled = {key: end for key, end in logs.items() if changed_at[key] <= reported.reported_offset}
        if reported.reported_offset:
            assert settled.items() <= known.items()
    for _ in range(2 * len(KEYS) + 4):
        for topic_id, index, leader_epoch, end in told(reported, len(steps) + 1, 2):
            known[topic_id, index] = (leader_epoch, end)
    assert logs.items() <= known.items()
    assert reported.reported_offset == len(steps) + 1
