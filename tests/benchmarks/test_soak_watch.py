"""A soak tells which fences and elections had no cause."""

from __future__ import annotations

from benchmarks.soak_watch import EXPLAINED_S, Watch

QUORUM = ["quorum 1", "quorum 2"]


class Clock:
    """A clock that tests set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def watched(faults: dict[str, list[float]]) -> tuple[Watch, Clock]:
    clock = Clock()
    return Watch(lambda name: faults.get(name, []), clock), clock


def test_a_fence_after_a_fault_of_that_broker_is_explained() -> None:
    watch, clock = watched({"broker 3": [100.0]})
    clock.now_s = 101.0
    watch.saw_fenced(["broker 3"])
    assert watch.fences == [(101.0, "broker 3")]
    assert watch.needless == []


def test_a_fence_of_another_broker_or_much_later_is_needless() -> None:
    watch, clock = watched({"broker 3": [100.0]})
    clock.now_s = 101.0
    watch.saw_fenced(["broker 2"])
    clock.now_s = 101.0 + EXPLAINED_S
    watch.saw_fenced(["broker 2", "broker 3"])
    assert watch.needless == ["101 s: broker 2 was fenced", f"{101 + EXPLAINED_S:.0f} s: broker 3 was fenced"]


def test_a_fence_counts_once_until_it_ends() -> None:
    watch, _ = watched({})
    for fenced in (["broker 1"], ["broker 1"], [], ["broker 1"]):
        watch.saw_fenced(fenced)
    assert len(watch.fences) == len(watch.needless) == 2


def test_the_first_term_is_no_change_and_an_older_one_neither() -> None:
    watch, _ = watched({})
    for term in (7, 7, 6):
        watch.saw_term(term, QUORUM)
    assert (watch.terms, watch.needless) == (0, [])


def test_a_new_term_is_needless_unless_a_quorum_node_had_a_fault() -> None:
    watch, clock = watched({"quorum 2": [50.0], "broker 1": [200.0]})
    watch.saw_term(1, QUORUM)
    clock.now_s = 51.0
    watch.saw_term(3, QUORUM)
    clock.now_s = 201.0
    watch.saw_term(4, QUORUM)
    assert watch.terms == 3
    assert watch.needless == ["201 s: term 3 became 4"]
