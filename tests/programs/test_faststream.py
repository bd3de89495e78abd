"""FastStream with aiokafka and with confluent-kafka: of two instances one and a broker are killed, and no order is
lost.

It promises each message at least once. So results may be duplicated after a kill, but none may be missing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import RunningCluster, wait_until
from tests.programs.environments import Environment
from tests.programs.process import Program
from tests.programs.topics import Input, Output, Sent, committed, create_topics

pytestmark = pytest.mark.timeout(600)
FASTSTREAM = Environment("faststream")
PARTITIONS = 3
PER_SECOND = 6  # it handles them one by one, and waits for the cluster twice for each
GROUPS = {"payers": "orders", "auditors": "orders", "bookers": "paid"}


def orders(prefix: str) -> Iterator[Sent]:
    for number in itertools.count(1):
        yield Sent("orders", f"customer{number % 50}", f"{prefix}{number}")


def expected(sent: list[Sent]) -> dict[str, set[str]]:
    """Return the expected contents of each topic."""
    all_of = [message.value for message in sent]
    return {
        "paid": {f"paid {value}" for value in all_of},
        "booked": {f"booked paid {value}" for value in all_of},
        "refused": {f"refused {value}" for value in all_of if value.endswith("7")},
        "audited": {f"audited {value}" for value in all_of},
    }


class Results:
    """The program's output in each of its topics."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._outputs = {topic: Output(cluster.bootstrap, topic, PARTITIONS) for topic in expected([])}

    def go_on(self, more: int = 20) -> None:
        """Return once each topic has more: an order in ten is refused."""
        for topic, output in self._outputs.items():
            output.wait_for(output.read() + (more // 10 if topic == "refused" else more), 90)

    def wait_for_all(self, sent: list[Sent]) -> None:
        """Return once the expected results are there; fail on any others."""
        for topic, wanted in expected(sent).items():
            self._wait_for(topic, wanted)
            assert set(self.of(topic)) == wanted

    def of(self, topic: str) -> Counter[str]:
        return Counter(value for _, value in self._outputs[topic].messages)

    def _wait_for(self, topic: str, wanted: set[str]) -> None:
        self._outputs[topic].wait_until(lambda: wanted <= set(self.of(topic)), "all", 90)


@pytest.mark.parametrize("backend", ["kafka", "confluent"])
def test_orders_through_kills(cluster: RunningCluster, tmp_path: Path, backend: str) -> None:
    create_topics(cluster, "orders", *expected([]), partitions=PARTITIONS)
    results = Results(cluster)
    ann, ben = (
        FASTSTREAM.program("faststream_orders.py", tmp_path / f"{name}.log", backend, cluster.bootstrap)
        for name in ("ann", "ben")
    )
    with ann:
        with Input(cluster.bootstrap, orders("first"), PER_SECOND) as given:
            results.go_on()
        results.wait_for_all(given.sent)
        for topic, wanted in expected(given.sent).items():
            assert results.of(topic) == Counter(wanted), "without a kill each is there once"
        wait_until_acknowledged(cluster, sum(results.of("paid").values()), len(given.sent))
        with ben:
            with Input(cluster.bootstrap, orders("second"), PER_SECOND) as second:
                results.go_on()
                ann.kill9()
                results.go_on()  # ben has its partitions
                ann.start()
                results.go_on()
                kill_with_a_broker(cluster, ben, results)
                ann.stop()
                results.go_on()
            results.wait_for_all([*given.sent, *second.sent])
            wait_until_acknowledged(
                cluster, sum(results.of("paid").values()), len(given.sent) + len(second.sent)
            )
            ben.stop()


def kill_with_a_broker(cluster: RunningCluster, instance: Program, results: Results) -> None:
    """Kill an instance and the leader of its input; results go on while the broker is away."""
    leader = cluster.leader("orders", 0)
    assert leader is not None
    cluster.broker(leader).kill9()
    instance.kill9()
    instance.start()
    results.go_on()
    cluster.broker(leader).restart()
    cluster.wait_until_in_sync("orders", 60)


def wait_until_acknowledged(cluster: RunningCluster, paid: int, ordered: int) -> None:
    """Return once every group has committed its whole topic."""
    totals = {"orders": ordered, "paid": paid}

    def acknowledged() -> dict[str, int]:
        return {
            group: committed(cluster.bootstrap, group, topic, PARTITIONS) for group, topic in GROUPS.items()
        }

    wanted = {group: totals[topic] for group, topic in GROUPS.items()}
    wait_until(lambda: acknowledged() == wanted, f"{wanted} acknowledged", 60)
