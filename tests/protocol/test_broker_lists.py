"""Equal lists of brokers are one object, however many there are."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata_quorum.state.controller import Controller
from ottla.protocol.cluster.broker_lists import KNOWN_MAX, broker_list
from tests.metadata_quorum.state.harness import ControllerWithBrokers, topic


@given(st.lists(st.integers(0, 2**31 - 1), max_size=5))
def test_it_has_the_brokers_in_their_order(brokers: list[int]) -> None:
    assert broker_list(brokers) == tuple(brokers)
    assert broker_list(iter(brokers)) is broker_list(tuple(brokers))


def test_there_may_be_more_lists_than_are_known() -> None:
    lists = [broker_list((number, number + 1)) for number in range(2 * KNOWN_MAX)]
    assert lists == [(number, number + 1) for number in range(2 * KNOWN_MAX)]


def test_partitions_with_the_same_replicas_share_them_as_made_and_as_restored() -> None:
    cluster = ControllerWithBrokers(3)
    cluster.create(topic("t", 300, 3))
    cluster.fence(1)
    restored = Controller()
    restored.restore(list(cluster.machine.snapshot()))
    for controller in (cluster.machine, restored):
        states = controller.image.topics["t"].partitions.values()
        lists = [members for state in states for members in (state.replicas, state.isr)]
        assert len({id(members) for members in lists}) == len(set(lists)) <= 6 + 2
