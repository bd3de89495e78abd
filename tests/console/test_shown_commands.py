"""Commands that the console shows beside its changes: run by a shell, they do the same as the console."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

import pytest

from ottla import Admin, Consumer, Producer
from ottla.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE, NewTopic
from ottla.client.admin.records import EARLIEST, LATEST
from ottla.client.records import TopicPartition
from ottla.console.area import Action, Change, Visit
from ottla.console.live.reading import EndOffsets
from ottla.console.live.sampler import Sampler
from ottla.console.live.snapshots import take_snapshot
from ottla.console.pages import all_areas
from ottla.console.pages.messages.question import question_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PATIENCE_S = 60.0
ODD = '-\'it $HOME `id` "x" \\ \u00e9\u202e\n;'
"""What a stranger may call a group, a user or a transactional id."""
SHELL = f'ottla() {{ "{sys.executable}" -m ottla "$@"; }}; set -e -o pipefail\n'
Answer = Callable[[str], Awaitable[object]]


class Twins:
    """Two things that are the same but for their names: the console changes one, and a shell the other."""

    def __init__(self, admin: Admin, bootstrap: str) -> None:
        self.admin, self.bootstrap = admin, bootstrap
        self._sampler = Sampler(lambda at_s: take_snapshot(admin, at_s), EndOffsets(admin))
        self._actions = {
            part.path: part for area in all_areas() for part in area.parts if isinstance(part, Action)
        }

    def visit(self, path: str, query: Mapping[str, str], form: Mapping[str, str]) -> Visit:
        return Visit(
            admin=self.admin,
            sampler=self._sampler,
            connection={"bootstrap_servers": self.bootstrap},
            may_change=True,
            path=path,
            query=query,
            form=form,
        )

    async def plan(self, path: str, query: Mapping[str, str], form: Mapping[str, str]) -> Change:
        return await self._actions[path].plan(self.visit(path, query, form))

    async def run(self, command: str) -> str:
        """What a shell prints that runs a command, far away from UTC."""
        assert command
        environ = {**os.environ, "OTTLA_BOOTSTRAP": self.bootstrap, "TZ": "XXX-14"}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            SHELL + command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            env=environ,
        )
        async with asyncio.timeout(PATIENCE_S):
            out, errors = await process.communicate()
        assert process.returncode == 0, (command, out, errors)
        return out.decode()

    async def change(
        self,
        path: str,
        names: Sequence[str],
        form: Mapping[str, str],
        *,
        parameter: str = "name",
        meanwhile: Answer | None = None,
        outcome: Answer,
    ) -> object:
        """Change both, and return the outcome, which is that of both. In the form `{}` stands for the name."""
        changes = []
        for name in names:
            fields = {
                field: text.replace("{}", name).replace("{topic}", name.removesuffix(ODD))
                for field, text in form.items()
            }
            changes.append(await self.plan(path, {parameter: name} if parameter else {}, fields))
        if meanwhile is not None:
            for name in names:
                await meanwhile(name)
        await changes[0].carry_out(self.visit(path, {}, {}))
        await self.run(changes[1].command)
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:  # another broker may be asked, which hears of a change a moment later
            one, other = [await outcome(name) for name in names]
            if one == other or asyncio.get_running_loop().time() > deadline:
                assert one == other, changes[1].command
                return one
            await asyncio.sleep(0.1)

    async def topics(self, partitions: int, *records: int) -> list[str]:
        """The names of two topics, with so many records in each partition."""
        names = [f"shown-{uuid.uuid4().hex[:8]}" for _ in range(2)]
        await self.admin.create_topics([NewTopic(name, partitions, 1) for name in names])
        for name in names:
            await self.write(name, *records)
        return names

    async def write(self, topic: str, *records: int) -> None:
        async with Producer(bootstrap_servers=self.bootstrap) as producer:
            for index, count in enumerate(records):
                for number in range(count):
                    await producer.send(topic, b"x", partition=index, timestamp_ms=1_700_000_000_000 + number)

    async def settings(self, topic: str) -> dict[str, str | None]:
        entries = await self.admin.describe_configs(TOPIC_RESOURCE, topic)
        return {one.name: one.value for one in entries if one.source == "topic"}

    async def starts(self, topic: str) -> list[object]:
        (found,) = await self.admin.describe_topics([topic])
        names = [TopicPartition(topic, index) for index in sorted(found.partitions)]
        told = await self.admin.list_offsets(dict.fromkeys(names, EARLIEST))
        return [told[name] for name in names]

    async def exists(self, topic: str) -> bool:
        return topic in await self.admin.list_topics()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as running:
        yield running


@pytest.fixture
async def twins(cluster: LocalCluster) -> AsyncIterator[Twins]:
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield Twins(admin, cluster.bootstrap_servers)


async def test_topics_from_their_creation_to_their_end(twins: Twins) -> None:
    names = [f"shown-{uuid.uuid4().hex[:8]}" for _ in range(2)]

    async def shape(name: str) -> object:
        (found,) = await twins.admin.describe_topics([name])
        return len(found.partitions), await twins.settings(name)

    form = {
        "topic": "{}",
        "partitions": "2",
        "replicas": "1",
        "settings": "retention.ms=-1\nsegment.ms=70000",
    }
    made = await twins.change("/topics/create", names, form, parameter="", outcome=shape)
    assert made == (2, {"retention.ms": "-1", "segment.ms": "70000"})
    form = {"settings": "segment.ms=80000\ncleanup.policy=compact,delete"}
    made = await twins.change("/topics/alter", names, form, outcome=shape)
    assert made == (2, {"segment.ms": "80000", "cleanup.policy": "compact,delete"})
    made = await twins.change("/topics/partitions", names, {"total": "4"}, outcome=shape)
    assert made == (4, {"segment.ms": "80000", "cleanup.policy": "compact,delete"})
    assert await twins.change("/topics/delete", names, {"again": "{}"}, outcome=twins.exists) is False


async def test_a_name_that_looks_like_an_option(twins: Twins) -> None:
    names = [f"-p{uuid.uuid4().hex[:8]}" for _ in range(2)]
    form = {"topic": "{}", "partitions": "1", "replicas": "1"}
    assert await twins.change("/topics/create", names, form, parameter="", outcome=twins.exists) is True
    await twins.write(names[0], 1)
    await twins.write(names[1], 1)
    assert await twins.change("/topics/trim", names, {"offset": "end"}, outcome=twins.starts) == [1]
    assert await twins.change("/topics/delete", names, {"again": "{}"}, outcome=twins.exists) is False


async def test_trims_delete_what_was_shown(twins: Twins) -> None:
    names = await twins.topics(3, 7, 2, 0)

    async def more(name: str) -> None:
        await twins.write(name, 5, 5, 5)

    starts = await twins.change(
        "/topics/trim", names, {"offset": "end"}, meanwhile=more, outcome=twins.starts
    )
    assert starts == [7, 2, 0]
    form = {"offset": "9", "partition": "0"}
    assert await twins.change("/topics/trim", names, form, outcome=twins.starts) == [9, 2, 0]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"to": "start"}, [0, None, 0]),
        ({"to": "end", "topic": "{topic}"}, [9, 4, 6]),
        ({"to": "back by", "value": "2"}, [6, None, 1]),
        ({"to": "offset", "value": "4", "topic": "{topic}", "partition": "1"}, [8, 4, 3]),
        ({"to": "time", "value": "2023-11-14T22:13:20.003", "topic": "{topic}"}, [3, 3, 3]),
    ],
)
async def test_groups_are_moved_as_was_shown(
    twins: Twins, form: dict[str, str], expected: list[int | None]
) -> None:
    names = await twins.topics(3, 9, 4, 6)
    for name in names:  # of one partition there is no offset yet
        offsets = {TopicPartition(name, 0): 8, TopicPartition(name, 2): 3}
        assert set((await twins.admin.alter_offsets(name + ODD, offsets)).values()) == {None}

    async def more(group: str) -> None:
        await twins.write(group.removesuffix(ODD), 5, 5, 5)

    async def committed(group: str) -> list[int | None]:
        found = await twins.admin.committed_offsets(group)
        return [found.get(TopicPartition(group.removesuffix(ODD), index)) for index in range(3)]

    groups = [name + ODD for name in names]
    found = await twins.change("/groups/seek", groups, form, meanwhile=more, outcome=committed)
    assert found == expected

    async def exists(group: str) -> bool:
        return group in {one.group_id for one in await twins.admin.list_groups()}

    assert await twins.change("/groups/delete", groups, {"again": "{}"}, outcome=exists) is False


async def test_records_are_read_from_the_time_that_was_shown(twins: Twins) -> None:
    topic = (await twins.topics(2, 9, 4))[0]
    query = {"topic": topic, "from": "time", "at": "2023-11-14T22:13:20.003", "partition": "0"}
    command = question_of(twins.visit("/messages", query, {})).command()
    assert await twins.run(command) == "x\n" * 6


async def test_quotas_are_those_that_were_shown(twins: Twins) -> None:
    names = [f"shown-{uuid.uuid4().hex[:8]}{ODD}" for _ in range(2)]

    async def quotas(user: str) -> dict[str, float]:
        found = await twins.admin.describe_quotas({"user": user})
        return next((dict(limits) for whose, limits in found if dict(whose) == {"user": user}), {})

    form = {"user": "{}", "quotas": "request_percentage=12.3456789012345678\nproducer_byte_rate=12345678901"}
    for name in names:  # spaces around a name are not taken by the form for new quotas
        assert name == name.strip()
    made = await twins.change("/access/quotas/new", names, form, parameter="", outcome=quotas)
    assert made == {"request_percentage": 12.345678901234567, "producer_byte_rate": 12345678901.0}
    form = {"quotas": "consumer_byte_rate=5\nproducer_byte_rate=12345678901"}
    made = await twins.change("/access/quotas/alter", names, form, parameter="user", outcome=quotas)
    assert made == {"consumer_byte_rate": 5.0, "producer_byte_rate": 12345678901.0}
    form = {"quotas": ""}
    made = await twins.change("/access/quotas/alter", names, form, parameter="user", outcome=quotas)
    assert made == {}


async def test_settings_of_brokers(twins: Twins) -> None:
    names = ["1", "2"]

    async def settings(broker: str) -> dict[str, str | None]:
        entries = await twins.admin.describe_configs(BROKER_RESOURCE, broker)
        return {one.name: one.value for one in entries if one.source == "broker"}

    before = await settings("1")
    assert before == await settings("2")
    lines = "\n".join(f"{key}={value}" for key, value in before.items())
    form = {"settings": f"{lines}\nlog.cleanup.policy=compact,delete\nlog.retention.ms=-1"}
    made = await twins.change("/brokers/alter", names, form, parameter="id", outcome=settings)
    assert made == {**before, "log.cleanup.policy": "compact,delete", "log.retention.ms": "-1"}
    assert (
        await twins.change("/brokers/alter", names, {"settings": lines}, parameter="id", outcome=settings)
        == before
    )


@pytest.mark.parametrize(
    "form",
    [
        {"key": "k", "value": "v", "headers": "a=1\na=2\nb=it's $HOME"},
        {"key_as": "nothing", "value": "two\nlines and \u00e9\u202e", "partition": "1"},
        {"key_as": "base64", "key": base64.b64encode(b"\xff\x01-'").decode(), "value": "-n"},
        {"key": "gone", "value_as": "nothing"},
        {"key": "-k", "value_as": "base64", "value": base64.b64encode(bytes(range(1, 256))).decode()},
        {"key": "", "value": "%s\\n"},
        {"key_as": "nothing", "value": ""},
    ],
)
async def test_records_are_sent_as_was_shown(twins: Twins, form: dict[str, str]) -> None:
    names = await twins.topics(2)

    async def records(topic: str) -> object:
        places = [TopicPartition(topic, index) for index in range(2)]
        ends = await twins.admin.list_offsets(dict.fromkeys(places, LATEST))
        async with Consumer(bootstrap_servers=twins.bootstrap) as consumer:
            consumer.assign(places)
            for place in places:
                consumer.seek(place, 0)
            async with asyncio.timeout(PATIENCE_S):
                found = [await consumer.getone() for _ in range(sum(map(int, map(str, ends.values()))))]
        return [(one.key, one.value, list(one.headers)) for one in found], [
            one.partition for one in found if "partition" in form
        ]

    sent, _ = await twins.change(
        "/messages/send", names, {"topic": "{}", **form}, parameter="", outcome=records
    )
    assert len(sent) == 1


async def test_transactions_are_ended_as_was_shown(twins: Twins) -> None:
    topics = await twins.topics(1)
    names = [f"{topic}{ODD}" for topic in topics]
    producers = [Producer(bootstrap_servers=twins.bootstrap, transactional_id=name) for name in names]
    for producer, topic in zip(producers, topics, strict=True):
        await producer.start()
        await producer.begin_transaction()
        await producer.send(topic, b"x")
        await producer.flush()

    async def state(name: str) -> object:
        told = (await twins.admin.describe_transactions([name]))[name]
        return told.code if isinstance(told, KafkaError) else (told.state, told.app_version)

    async def ended(name: str) -> object:
        found = await state(name)
        return None if found == ("PrepareAbort", -1) else found

    given = {"again": "{}"}
    made = await twins.change("/transactions/abort", names, given, parameter="id", outcome=ended)
    assert made == ("CompleteAbort", -1)
    made = await twins.change("/transactions/forget", names, given, parameter="id", outcome=state)
    assert made is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    for producer in producers:
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
        await producer.stop()
