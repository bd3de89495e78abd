"""A node's memory of the others' acknowledgements and terms, and its detection of a node that has less."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.raft import acknowledged_index
from ottla.metadata_quorum.raft.acknowledged_index import AcknowledgedIndex, AcknowledgedIndexes
from ottla.metadata_quorum.raft.disk import CorruptFile, Directory

PROMISED = AcknowledgedIndex(term=7, index=20, index_term=5)


@pytest.mark.parametrize(
    ("term", "index", "index_term"),
    [(7, 20, 5), (8, 25, 5), (7, 12, 6)],
    ids=["exactly that", "more", "a log of a later term, which has all that was committed"],
)
def test_a_node_that_has_what_it_promised(term: int, index: int, index_term: int) -> None:
    assert PROMISED.breach(term, index, index_term) == ""


@pytest.mark.parametrize(
    ("term", "index", "index_term", "said"),
    [
        (7, 19, 5, "its log ends at entry 19 of term 5, not at 20 of term 5"),
        (7, 30, 4, "its log ends at entry 30 of term 4, not at 20 of term 5"),
        (6, 20, 5, "it is in term 6, not in 7, and may have forgotten a vote"),
    ],
)
def test_a_node_that_has_less(term: int, index: int, index_term: int, said: str) -> None:
    assert PROMISED.breach(term, index, index_term) == said


steps = st.lists(
    st.tuples(
        st.integers(1, 3), st.one_of(st.integers(1, 9), st.tuples(st.integers(1, 9), st.integers(1, 9)))
    )
)


@given(steps)
def test_the_most_that_was_promised_counts(history: list[tuple[int, int | tuple[int, int]]]) -> None:
    known = AcknowledgedIndexes()
    terms: dict[int, int] = {}
    ends: dict[int, tuple[int, int]] = {}
    for peer, what in history:
        if isinstance(what, int):
            known.spoke_in(peer, what)
            terms[peer] = max(terms.get(peer, 0), what)
        else:
            index_term, index = what
            known.acknowledged(peer, index, index_term)
            ends[peer] = max(ends.get(peer, (0, 0)), what)
    for peer in (1, 2, 3):
        promise = known.of(peer)
        assert promise.term == terms.get(peer, 0)
        assert (promise.index_term, promise.index) == ends.get(peer, (0, 0))


def test_promises_survive_a_restart_and_are_forgotten_when_told_to(tmp_path: Path) -> None:
    disk = Directory(tmp_path)
    assert acknowledged_index.load(disk).of(2) == AcknowledgedIndex()
    known = AcknowledgedIndexes()
    known.spoke_in(2, 7)
    known.acknowledged(2, 20, 5)
    assert known.changed
    acknowledged_index.save(disk, known.encode())
    assert not known.changed
    assert acknowledged_index.load(disk).of(2) == PROMISED
    acknowledged_index.forget(disk)
    assert acknowledged_index.load(disk).of(2) == AcknowledgedIndex()


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    disk = Directory(tmp_path)
    known = AcknowledgedIndexes()
    known.spoke_in(2, 7)
    acknowledged_index.save(disk, known.encode())
    file = tmp_path / acknowledged_index.FILE_NAME
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(CorruptFile, match="promises is damaged"):
        acknowledged_index.load(disk)
