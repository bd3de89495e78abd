"""A console without a cluster: an admin client that answers from memory, and a browser that has entered."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, cast

from starlette.testclient import TestClient
from starlette.types import ASGIApp

from ottla.client.admin import (
    TOPIC_RESOURCE,
    Admin,
    ClusterDescription,
    ConfigEntry,
    FencedBroker,
    NewTopic,
    QuorumDescription,
)
from ottla.client.admin.records import EARLIEST, TO_THE_END
from ottla.client.connections.metadata import BrokerAddress, PartitionInfo, TopicInfo
from ottla.client.failures import VersionUnsupported
from ottla.client.records import TopicPartition
from ottla.console.app import build
from ottla.console.area import Area
from ottla.console.feature_detection import ClusterFeatures
from ottla.console.live.counter_sources import EndOffsets
from ottla.console.live.sampler import Sampler
from ottla.console.live.shared_readings import SharedReadings
from ottla.console.live.snapshots import ClusterSnapshot, take_snapshot
from ottla.console.login import TokenLogin
from ottla.console.pages import all_areas
from ottla.console.rendering import Templates
from ottla.console.security import Door, ListenAddress, door_of
from ottla.console.sessions import Session
from ottla.protocol.errors import ErrorCode, KafkaError

TOKEN = "a-token-of-tests-1234"
HOST = "127.0.0.1:9280"
ORIGIN = f"http://{HOST}"
HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def topic(
    name: str, *partitions: PartitionInfo, is_internal: bool = False, id_: bytes = b"\0" * 16
) -> TopicInfo:
    return TopicInfo(
        name, id_, is_internal, partitions={partition.index: partition for partition in partitions}
    )


def partition(index: int = 0, leader: int = 1, isr: Sequence[int] = (1, 2, 3)) -> PartitionInfo:
    return PartitionInfo(index, leader, 5, (1, 2, 3), tuple(isr))


def snapshot_of(*topics: TopicInfo, at_s: float = 1000.0, **changes: Any) -> ClusterSnapshot:
    brokers = tuple(BrokerAddress(number, "host", 9091 + number, None) for number in (1, 2, 3))
    given: dict[str, Any] = {
        "at_s": at_s,
        "cluster": ClusterDescription("cluster-1", 2, brokers),
        "topics": topics,
        "quorum": QuorumDescription(101, 7, {101: ("host", 9200), 102: None}),
        "quorum_trouble": "",
        "reassigning": {},
    }
    return ClusterSnapshot(**(given | changes))


def fenced(*ids: int, since_ms: int | None = None) -> tuple[FencedBroker, ...]:
    """Return fenced brokers, each at the address that it had."""
    return tuple(FencedBroker(BrokerAddress(id_, "host", 9091 + id_, None), since_ms) for id_ in ids)


class FakeAdmin:
    """An admin client that answers the requests of the topic pages and the overview from memory."""

    def __init__(self, *topics: TopicInfo) -> None:
        self.topics = {listed.name: listed for listed in topics}
        self.ends: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.calls: list[tuple[str, Any]] = []
        self.reassigning: dict[TopicPartition, Any] = {}
        self.failure: Exception | None = None

    def __getattr__(self, question: str) -> Callable[..., Coroutine[Any, Any, None]]:
        """Return a request that fails, since this cluster does not support it."""

        async def unknown(*_: Any, **__: Any) -> None:
            raise VersionUnsupported(f"this cluster knows nothing of {question}")

        return unknown

    async def describe_cluster(self) -> ClusterDescription:
        if self.failure is not None:
            raise self.failure
        return snapshot_of().cluster

    async def describe_topics(self, names: Collection[str] | None = None) -> list[TopicInfo]:
        for name in names or ():
            if name not in self.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return [self.topics[name] for name in (sorted(self.topics) if names is None else names)]

    async def describe_quorum(self, **_: Any) -> QuorumDescription:
        quorum = snapshot_of().quorum
        assert quorum is not None
        return quorum

    async def list_partition_reassignments(self) -> dict[TopicPartition, Any]:
        return self.reassigning

    async def partition_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 2048)

    async def list_offsets(
        self, asked: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        return {
            name: (self.starts if timestamp == EARLIEST else self.ends).get(name, 0)
            for name, timestamp in asked.items()
        }

    async def describe_configs(self, kind: int, name: str) -> list[ConfigEntry]:
        own = self.settings.get(name, {})
        source = "topic" if kind == TOPIC_RESOURCE else "broker" if name else "all brokers"
        default = ("retention.ms", "604800000", "default")
        entries = [
            ConfigEntry(key, value, source, False, False, False, ((key, value, source), default))
            for key, value in own.items()
        ]
        if "retention.ms" not in own:
            entries.append(ConfigEntry(*default, True, False, False))
        entries.append(ConfigEntry("password", None, "broker", False, True, False))
        return entries

    async def alter_configs(
        self, kind: int, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        self.calls.append(("alter", (name, dict(changes), validate_only)))
        if "no.such.setting" in changes:
            raise KafkaError(ErrorCode.INVALID_CONFIG, "there is no setting 'no.such.setting'")
        if not validate_only:
            own = {**self.settings.get(name, {}), **changes}
            self.settings[name] = {key: value for key, value in own.items() if value is not None}

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        for listed in topics:
            self.calls.append(("create", (listed.name, validate_only)))
            if listed.name in self.topics:
                raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {listed.name!r} already")
            if not validate_only:
                self.topics[listed.name] = topic(listed.name, partition())

    async def create_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        self.calls.append(("partitions", (name, total, validate_only)))
        if not validate_only:
            self.topics[name] = topic(name, *(partition(index) for index in range(total)))

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.calls.append(("trim", dict(before)))
        assert TO_THE_END not in before.values()
        self.starts |= before
        return dict(before)

    async def delete_topics(self, names: Iterable[str]) -> None:
        for name in names:
            self.calls.append(("delete", name))
            del self.topics[name]

    def changes(self) -> list[str]:
        """Return the calls that changed something, without mere checks."""
        return [what for what, given in self.calls if not (isinstance(given, tuple) and given[-1] is True)]


def session_with(admin: Admin, door: Door, areas: Sequence[Area], **given: Any) -> Session:
    """Return the session of all browsers with this door's token; `given` are its fields, such as its user."""
    sampler = Sampler(lambda at_s: take_snapshot(admin, at_s), EndOffsets(admin))
    return Session(
        admin=admin,
        sampler=sampler,
        readings=SharedReadings(admin, sampler),
        offers=ClusterFeatures(areas, admin),
        **{"connection": {"bootstrap_servers": "host:9092"}, "form_value": door.form_value, **given},
    )


def app_behind_token(session: Session, door: Door, areas: Sequence[Area], *, may_change: bool) -> ASGIApp:
    """Return a console in which all browsers with the token share this session."""
    templates = Templates()
    entrance = TokenLogin(door, session, templates)
    return build(door=door, entrance=entrance, areas=areas, may_change=may_change, templates=templates)


class Browser:
    """A client of the console that has entered, and that sends forms as browsers do."""

    def __init__(
        self, admin: FakeAdmin, *, may_change: bool = False, areas: Sequence[Area] | None = None
    ) -> None:
        self.door = door_of(ListenAddress("127.0.0.1", 9280), token=TOKEN)
        areas = all_areas() if areas is None else areas
        self.session = session_with(cast(Admin, admin), self.door, areas)
        app = app_behind_token(self.session, self.door, areas, may_change=may_change)
        self.client = TestClient(app, base_url=ORIGIN, follow_redirects=False, raise_server_exceptions=False)

    def enter(self) -> Browser:
        assert self.client.get("/", params={"token": TOKEN}).status_code == 303
        return self

    def read(self, address: str, status: int = 200) -> str:
        """Return the page as text."""
        answer = self.client.get(address)
        assert answer.status_code == status, answer.text
        return answer.text

    def send(self, address: str, status: int = 200, **fields: str) -> str:
        """Send a form from a page of the console; return the resulting page, or the redirection."""
        given = {"form_value": self.door.form_value, **fields}
        answer = self.client.post(address, data=given, headers={"origin": ORIGIN})
        assert answer.status_code == status, answer.text
        return answer.headers.get("location", answer.text)

    def change(self, address: str, status: int = 303, **fields: str) -> str:
        """Send a form, view its preview, and confirm it."""
        return self.do_it(address, self.send(address, **fields), status)

    def do_it(self, address: str, preview: str, status: int = 303) -> str:
        """Send the form of a preview as a browser does."""
        return self.send(address, status, **hidden_fields(preview), step="apply")


def target(page: str, text: str) -> str:
    """Return the address of the first link with this text."""
    found = re.search(rf'<a [^>]*href="([^"]*)"[^>]*>{re.escape(html.escape(text))}</a>', page)
    assert found is not None, page
    return html.unescape(found[1])


def hidden_fields(page: str) -> dict[str, str]:
    """Return the hidden fields of a form."""
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', page)
    return {html.unescape(name): html.unescape(value) for name, value in found}


def seen(page: str) -> str:
    """Return the visible text of a page."""
    text = re.sub(r"<[^>]+>", " ", page.replace("<wbr>", ""))
    return " ".join(html.unescape(text).split())
