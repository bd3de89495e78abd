"""The quorum's leader is told where logs end, each time that is news, and everything when another node leads."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.quorum.progress import LogEnd, LogKey, ToldProgress

A, B = b"a" * 16, b"b" * 16
KEYS: list[LogKey] = [(topic_id, number) for topic_id in (A, B) for number in range(3)]


class Logs(dict[LogKey, LogEnd]):
    """What there is, and what has changed."""

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
        """None: it goes."""
        self.noted[key] = None
        self.pop(key, None)
        if end is not None:
            self[key] = end


def told(
    progress: ToldProgress, image_offset: int = 1, at_most: int | None = None
) -> list[tuple[bytes, int, int, int]]:
    news = progress.news(image_offset, at_most)
    return [(one.topic_id, one.partition, one.leader_epoch, one.log_end_offset) for one in news]


def test_what_moved_is_told_once() -> None:
    logs = Logs({(A, 0): (1, 5), (A, 1): (1, 0), (B, 0): (2, 7)})
    progress = ToldProgress(lambda: logs)
    assert told(progress) == [(A, 0, 1, 5), (A, 1, 1, 0), (B, 0, 2, 7)]
    assert told(progress) == []
    logs.change((A, 1), (1, 3))
    logs.change((B, 0), (3, 7))  # cut, and written to the same end by another leader
    logs.change((A, 0), (1, 5))  # only its high watermark moved
    assert told(progress) == [(A, 1, 1, 3), (B, 0, 3, 7)]
    progress.clear()
    assert len(told(progress)) == 3


def test_a_log_that_went_is_told_anew_when_it_is_back() -> None:
    logs = Logs({(A, 0): (1, 5), (B, 0): (1, 5)})
    progress = ToldProgress(lambda: logs)
    assert len(told(progress)) == 2
    logs.change((B, 0), None)
    assert told(progress) == []
    logs.change((B, 0), (1, 5))
    assert told(progress) == [(B, 0, 1, 5)]


ENDS = st.one_of(st.none(), st.tuples(st.integers(0, 2), st.integers(0, 2)))
CHANGES = st.lists(st.one_of(st.sampled_from(["tell", "clear"]), st.tuples(st.sampled_from(KEYS), ENDS)))


@given(CHANGES)
def test_as_much_is_told_as_by_a_walk_over_all_logs(
    changes: list[str | tuple[LogKey, LogEnd | None]],
) -> None:
    logs = Logs({(A, 0): (0, 0)})
    progress = ToldProgress(lambda: logs)
    known: dict[LogKey, LogEnd] = {}
    for change in [*changes, "tell"]:
        if change == "clear":
            progress.clear()
            known = {}
        elif change == "tell":
            expected = {(*key, *end) for key, end in logs.items() if known.get(key) != end}
            news = told(progress)
            assert (len(news), set(news)) == (len(expected), expected)
            known = dict(logs)
        else:
            assert not isinstance(change, str)
            logs.change(*change)


# ---------------------------------------------------------------- in pieces


def test_many_logs_are_told_in_pieces_and_then_as_of_the_image_of_the_first() -> None:
    logs = Logs(dict.fromkeys(KEYS, (1, 5)))
    progress = ToldProgress(lambda: logs)
    assert len(told(progress, 10, 4)) == 4
    assert (progress.is_amid_round, progress.told_offset) == (True, 0)
    logs.change(KEYS[0], (1, 6))
    assert told(progress, 11, 4) == [(*key, 1, 5) for key in KEYS[4:]]
    assert (progress.is_amid_round, progress.told_offset) == (False, 10)
    assert told(progress, 12, 4) == [(*KEYS[0], 1, 6)]
    assert progress.told_offset == 12


def test_a_round_ends_however_fast_logs_move() -> None:
    """Else a broker under load would never have told everything."""
    logs = Logs(dict.fromkeys(KEYS, (1, 0)))
    progress = ToldProgress(lambda: logs)
    for image_offset in range(1, 50):
        for key in KEYS:
            logs.change(key, (1, image_offset))
        told(progress, image_offset, 2)
        assert image_offset - progress.told_offset <= len(KEYS)


def test_another_leader_is_told_from_the_beginning() -> None:
    logs = Logs(dict.fromkeys(KEYS, (1, 5)))
    progress = ToldProgress(lambda: logs)
    told(progress, 10, 100)
    logs.change(KEYS[1], (1, 6))
    told(progress, 11, 100)
    assert progress.told_offset == 11
    progress.clear()
    assert progress.told_offset == 0
    assert len(told(progress, 11, 4)) == 4
    assert progress.told_offset == 0
    told(progress, 12, 4)
    assert progress.told_offset == 11


STEPS = st.lists(
    st.one_of(st.integers(1, 4), st.just("clear"), st.tuples(st.sampled_from(KEYS), ENDS)), max_size=60
)


@given(STEPS)
def test_the_leader_knows_all_that_was_so_at_the_offset_it_is_told(
    steps: list[int | str | tuple[LogKey, LogEnd | None]],
) -> None:
    """The image moves with each step. A log that has not changed since that offset ends where the leader thinks."""
    logs = Logs({(A, 0): (0, 0)})
    changed_at: dict[LogKey, int] = {(A, 0): 0}
    progress = ToldProgress(lambda: logs)
    known: dict[LogKey, LogEnd] = {}
    for image_offset, step in enumerate(steps, 1):
        if isinstance(step, int):
            for topic_id, index, leader_epoch, end in told(progress, image_offset, step):
                known[topic_id, index] = (leader_epoch, end)
        elif isinstance(step, str):
            progress.clear()
            known = {}
        else:
            logs.change(*step)
            changed_at[step[0]] = image_offset
        settled = {key: end for key, end in logs.items() if changed_at[key] <= progress.told_offset}
        if progress.told_offset:
            assert settled.items() <= known.items()
    for _ in range(2 * len(KEYS) + 4):
        for topic_id, index, leader_epoch, end in told(progress, len(steps) + 1, 2):
            known[topic_id, index] = (leader_epoch, end)
    assert logs.items() <= known.items()
    assert progress.told_offset == len(steps) + 1
