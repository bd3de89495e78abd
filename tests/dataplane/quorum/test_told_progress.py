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


def told(progress: ToldProgress) -> list[tuple[bytes, int, int, int]]:
    return [(one.topic_id, one.partition, one.leader_epoch, one.log_end_offset) for one in progress.news()]


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
