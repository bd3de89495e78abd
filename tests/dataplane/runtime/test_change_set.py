"""Readers of what has moved, against a model in which each of them looks at everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.dataplane.runtime.change_set import ChangeSet

READERS = 3

#: one to note; or a reader that asks
STEPS = st.lists(st.one_of(st.sampled_from("abcde"), st.integers(0, READERS - 1)), max_size=40)


@given(STEPS)
def test_each_reader_hears_of_everything_once_since_it_asked_last(steps: list[str | int]) -> None:
    moved: ChangeSet[str] = ChangeSet()
    there: dict[str, None] = {}
    readers = [moved.since(lambda: there) for _ in range(READERS)]
    expected: list[dict[str, None] | None] = [None] * READERS
    for step in steps:
        if isinstance(step, str):
            there[step] = None
            moved.note(step)
            for news in expected:
                if news is not None:
                    news[step] = None
        else:
            news = expected[step]
            assert list(readers[step].take()) == list(there if news is None else news)
            expected[step] = {}
    for reader, news in zip(readers, expected, strict=True):
        for letter in "abcde":
            assert (letter in reader) == (news is None or letter in news)


def test_whoever_has_not_asked_yet_keeps_nothing() -> None:
    moved: ChangeSet[str] = ChangeSet()
    moved.since(lambda: ())
    asks = moved.since(lambda: ())
    asks.take()
    moved.note("a")
    assert list(asks.take()) == ["a"]
    assert moved.readers == [asks]


def test_what_is_noted_while_a_reader_goes_through_is_taken_next() -> None:
    moved: ChangeSet[int] = ChangeSet()
    reader = moved.since(lambda: range(3))
    for number in reader.take():
        moved.note(number + 10)
    assert list(reader.take()) == [10, 11, 12]
