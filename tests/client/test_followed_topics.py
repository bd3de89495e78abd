"""The topics that a client asks about, and the time after which the client forgets a topic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.connections.followed import FollowedTopics

IDLE_S = 300.0
NAMES = st.sampled_from("abcde")
STEPS = st.lists(
    st.tuples(
        st.floats(0, 400),
        st.sampled_from(("use", "ask", "hold", "drop", "forget")),
        st.sampled_from((1, 2)),
        st.frozensets(NAMES),
    ),
    max_size=40,
)


def test_a_topic_is_asked_about_until_the_idle_time_after_its_last_use() -> None:
    topics = FollowedTopics(IDLE_S)
    topics.use(["a", "b"], 0.0)
    topics.use(["a"], 100.0)
    assert topics.forget(IDLE_S - 1, set()) == topics.all() == {"a", "b"}
    assert topics.forget(IDLE_S, set()) == topics.all() == {"a"}
    assert topics.forget(IDLE_S + 100, set()) == topics.all() == set()
    assert not len(topics)


def test_a_topic_with_records_on_their_way_is_in_use_however_old() -> None:
    topics = FollowedTopics(IDLE_S)
    topics.use(["a"], 0.0)
    assert topics.forget(1_000.0, {"a"}) == topics.all() == {"a"}
    assert topics.forget(1_001.0, set()) == set()


def test_a_holder_asks_about_the_topics_that_it_named_last() -> None:
    topics = FollowedTopics(IDLE_S)
    topics.hold("subscription", ["a", "b"])
    topics.hold("partitions", ["a"])
    topics.hold("subscription", ["c"])
    assert topics.all() == {"a", "c"}
    assert topics.forget(0.0, set()) == {"a", "c"}
    topics.hold("partitions", ())
    assert topics.forget(1e9, set()) == topics.all() == {"c"}


def test_an_answer_to_a_single_question_is_kept_for_the_idle_time_and_not_renewed() -> None:
    topics = FollowedTopics(IDLE_S)
    topics.ask(["a"], 10.0)
    assert topics.all() == set()
    assert topics.forget(IDLE_S, set()) == {"a"}
    assert topics.all() == set()
    assert topics.forget(IDLE_S + 10, set()) == set()


@given(STEPS)
def test_model(steps: list[tuple[float, str, int, frozenset[str]]]) -> None:
    """The model is a list of all past events."""
    topics = FollowedTopics(IDLE_S)
    now = 0.0
    used: dict[str, float] = {}
    seen: dict[str, float] = {}
    held: dict[int, frozenset[str]] = {}
    for later, act, holder, names in steps:
        now += later
        if act == "use":
            topics.use(names, now)
            used |= dict.fromkeys(names, now)
            seen |= dict.fromkeys(names, now)
        elif act == "ask":
            topics.ask(names, now)
            seen |= dict.fromkeys(names, now)
        elif act == "hold":
            topics.hold(holder, names)
            held[holder] = names
        elif act == "drop":
            topics.drop(names)
            used = {name: at for name, at in used.items() if name not in names}
        else:
            kept = topics.forget(now, names)
            used = {name: at for name, at in used.items() if at > now - IDLE_S or name in names}
            needed = set(used).union(*held.values())
            young = {name for name, at in seen.items() if at > now - IDLE_S}
            assert needed | names <= kept <= needed | names | young
        assert topics.all() == set(used).union(*held.values())
