"""Commands that the console shows with its changes: in a shell they have the same effect."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

import pytest

from ottla import Admin, Consumer, Producer
from ottla.client.admin import BROKER_RESOURCE, TOPIC_RESOURCE, NewTopic
from ottla.client.admin.records import EARLIEST, LATEST
from ottla.client.records import TopicPartition
from ottla.console.area import Action, Change, Visit
from ottla.console.live.counter_sources import EndOffsets
from ottla.console.live.sampler import Sampler
from ottla.console.live.shared_readings import SharedReadings
from ottla.console.live.snapshots import take_snapshot
from ottla.console.pages import all_areas
from ottla.console.pages.messages.question import question_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.testing import LocalCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

PATIENCE_S = 60.0
ODD = '-\'it $HOME `id` "x" \\ \u00e9\u202e\n;'
"""Possible name of a group, a user or a transactional id, as an attacker may choose it."""
SHELL = f'ottla() {{ "{sys.executable}" -m ottla "$@"; }}; set -e -o pipefail\n'
ANY_BYTES = bytes(range(1, 256))
Answer = Callable[[str], Awaitable[object]]
Headers = list[tuple[str, bytes]]


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def until(outcome: Callable[[], Awaitable[object]], expected: object) -> None:
    """Return once the outcome is as expected, since a broker may learn of a change a moment later."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while (found := await outcome()) != expected:
        assert asyncio.get_running_loop().time() < deadline, (found, expected)
        await asyncio.sleep(0.1)


class Twins:
    """Two equal objects with different names: the console changes one, and a shell the other."""

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
            readings=SharedReadings(self.admin, self._sampler),
            connection={"bootstrap_servers": self.bootstrap},
            may_change=True,
            path=path,
            query=query,
            form=form,
        )

    async def plan(self, path: str, query: Mapping[str, str], form: Mapping[str, str]) -> Change:
        return await self._actions[path].plan(self.visit(path, query, form))

    async def run(self, command: str) -> str:
        """Return the output of a shell that runs a command in a time zone far from UTC."""
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
        expected: object,
    ) -> None:
        """Change both, and check that both have the expected outcome. In the form `{}` stands for the name."""
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
        for name in names:
            await until(partial(outcome, name), expected)

    async def topics(self, partitions: int, *records: int) -> list[str]:
        """Return the names of two new topics, with these numbers of records in their partitions."""
        names = [f"shown-{uuid.uuid4().hex[:8]}" for _ in range(2)]
        kept = {"retention.ms": "-1"}  # records are old: retention would take them whenever it comes by
        await self.admin.create_topics([NewTopic(name, partitions, 1, configs=kept) for name in names])
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
        return {entry.name: entry.value for entry in entries if entry.source == "topic"}

    async def starts(self, topic: str) -> list[object]:
        (found,) = await self.admin.describe_topics([topic])
        names = [TopicPartition(topic, index) for index in sorted(found.partitions)]
        offsets = await self.admin.list_offsets(dict.fromkeys(names, EARLIEST))
        return [offsets[name] for name in names]

    async def exists(self, topic: str) -> bool:
        return topic in await self.admin.list_topics()


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1) as running:
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
    made: tuple[int, dict[str, str]] = (2, {"retention.ms": "-1", "segment.ms": "70000"})
    await twins.change("/topics/create", names, form, parameter="", outcome=shape, expected=made)
    form = {"settings": "segment.ms=80000\ncleanup.policy=compact,delete"}
    made = (2, {"segment.ms": "80000", "cleanup.policy": "compact,delete"})
    await twins.change("/topics/alter", names, form, outcome=shape, expected=made)
    form = {
        "set segment.ms": "",
        "set retention.ms": "-1",
        "set cleanup.policy": "delete",
        "set flush.ms": "",
    }
    made = (2, {"retention.ms": "-1", "cleanup.policy": "delete"})
    await twins.change("/topics/alter", names, form, outcome=shape, expected=made)
    await twins.change("/topics/partitions", names, {"total": "4"}, outcome=shape, expected=(4, made[1]))
    await twins.change("/topics/delete", names, {"again": "{}"}, outcome=twins.exists, expected=False)


async def test_a_name_that_looks_like_an_option(twins: Twins) -> None:
    names = [f"-p{uuid.uuid4().hex[:8]}" for _ in range(2)]
    form = {"topic": "{}", "partitions": "1", "replicas": "1", "settings": "retention.ms=-1"}
    await twins.change("/topics/create", names, form, parameter="", outcome=twins.exists, expected=True)
    await twins.write(names[0], 1)
    await twins.write(names[1], 1)
    await twins.change("/topics/trim", names, {"offset": "end"}, outcome=twins.starts, expected=[1])
    await twins.change("/topics/delete", names, {"again": "{}"}, outcome=twins.exists, expected=False)


async def test_trims_delete_what_was_shown(twins: Twins) -> None:
    names = await twins.topics(3, 7, 2, 0)

    async def more(name: str) -> None:
        await twins.write(name, 5, 5, 5)

    form = {"offset": "end"}
    await twins.change("/topics/trim", names, form, meanwhile=more, outcome=twins.starts, expected=[7, 2, 0])
    form = {"offset": "9", "partition": "0"}
    await twins.change("/topics/trim", names, form, outcome=twins.starts, expected=[9, 2, 0])


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
    for name in names:  # one partition has no offset yet
        offsets = {TopicPartition(name, 0): 8, TopicPartition(name, 2): 3}
        assert set((await twins.admin.alter_offsets(name + ODD, offsets)).values()) == {None}

    async def more(group: str) -> None:
        await twins.write(group.removesuffix(ODD), 5, 5, 5)

    async def committed(group: str) -> list[int | None]:
        found = await twins.admin.committed_offsets(group)
        return [found.get(TopicPartition(group.removesuffix(ODD), index)) for index in range(3)]

    groups = [name + ODD for name in names]
    await twins.change("/groups/seek", groups, form, meanwhile=more, outcome=committed, expected=expected)

    async def exists(group: str) -> bool:
        return group in {listed.group_id for listed in await twins.admin.list_groups()}

    await twins.change("/groups/delete", groups, {"again": "{}"}, outcome=exists, expected=False)


async def test_records_are_read_from_the_time_that_was_shown(twins: Twins) -> None:
    topic = (await twins.topics(2, 9, 4))[0]
    query = {"topic": topic, "from": "time", "at": "2023-11-14T22:13:20.003", "partition": "0"}
    command = question_of(twins.visit("/messages", query, {})).command()
    assert await twins.run(command) == "x\n" * 6
    for filters, count in (({"value": "^x$"}, 6), ({"value": f"-{ODD}"}, 0), ({"json": "$.a != 'b'"}, 0)):
        command = question_of(twins.visit("/messages", query | filters, {})).command()
        assert await twins.run(command) == "x\n" * count


async def test_quotas_are_those_that_were_shown(twins: Twins) -> None:
    names = [f"shown-{uuid.uuid4().hex[:8]}{ODD}" for _ in range(2)]

    async def quotas(user: str) -> dict[str, float]:
        found = await twins.admin.describe_quotas({"user": user})
        return next((dict(limits) for whose, limits in found if dict(whose) == {"user": user}), {})

    form = {
        "user": "{}",
        "quota request_percentage": "12.3456789012345678",
        "quota producer_byte_rate": "12345678901",
    }
    made = {"request_percentage": 12.345678901234567, "producer_byte_rate": 12345678901.0}
    await twins.change("/access/quotas/new", names, form, parameter="", outcome=quotas, expected=made)
    form = {"quota consumer_byte_rate": "5", "quota request_percentage": ""}
    made = {"consumer_byte_rate": 5.0, "producer_byte_rate": 12345678901.0}
    await twins.change("/access/quotas/alter", names, form, parameter="user", outcome=quotas, expected=made)
    form = {"quota consumer_byte_rate": "", "quota producer_byte_rate": ""}
    await twins.change("/access/quotas/alter", names, form, parameter="user", outcome=quotas, expected={})


@pytest.mark.parametrize(("whose", "source"), [("1", "broker"), ("all", "all brokers")])
async def test_settings_of_brokers(twins: Twins, whose: str, source: str) -> None:
    """A broker has no twin: the console and a shell take turns."""

    async def settings() -> dict[str, str | None]:
        entries = await twins.admin.describe_configs(BROKER_RESOURCE, "" if whose == "all" else whose)
        return {entry.name: entry.value for entry in entries if entry.source == source}

    async def planned(wanted: Mapping[str, str | None]) -> Change:
        lines = "\n".join(f"{key}={value}" for key, value in wanted.items())
        return await twins.plan("/brokers/alter", {"id": whose}, {"settings": lines})

    before = await settings()
    once = {**before, "log.retention.ms": "-1", "log.roll.ms": "3600000"}
    then = {**before, "log.retention.ms": "7200000"}
    for wanted in (once, then, before):
        await (await planned(wanted)).carry_out(twins.visit("/brokers/alter", {}, {}))
        await until(settings, wanted)
    for wanted in (once, then, before):
        await twins.run((await planned(wanted)).command)
        await until(settings, wanted)


@pytest.mark.parametrize(
    ("form", "key", "value", "headers"),
    [
        (
            {"key": "k", "value": "v", "headers": "a=1\na=2\nb=it's $HOME"},
            *(b"k", b"v", [("a", b"1"), ("a", b"2"), ("b", b"it's $HOME")]),
        ),
        (
            {"key_as": "nothing", "value": "two\nlines and \u00e9\u202e"},
            *(None, "two\nlines and \u00e9\u202e".encode(), []),
        ),
        ({"key_as": "base64", "key": in_base64(b"\xff\x01-'"), "value": "-n"}, b"\xff\x01-'", b"-n", []),
        ({"key": "gone", "value_as": "nothing"}, b"gone", None, []),
        ({"key": "-k", "value_as": "base64", "value": in_base64(ANY_BYTES)}, b"-k", ANY_BYTES, []),
        ({"key": "", "value": "%s\\n"}, b"", b"%s\\n", []),
        ({"key_as": "nothing", "value": ""}, None, b"", []),
    ],
)
async def test_records_are_sent_as_was_shown(
    twins: Twins, form: dict[str, str], key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    names = await twins.topics(2)

    async def records(topic: str) -> object:
        """Return all records of partition 1."""
        place = TopicPartition(topic, 1)
        end = (await twins.admin.list_offsets({place: LATEST}))[place]
        assert isinstance(end, int)
        async with Consumer(bootstrap_servers=twins.bootstrap) as consumer:
            consumer.assign([place])
            consumer.seek(place, 0)
            async with asyncio.timeout(PATIENCE_S):
                found = [await consumer.getone() for _ in range(end)]
        return [(record.key, record.value, list(record.headers)) for record in found]

    form |= {"topic": "{}", "partition": "1"}
    sent = [(key, value, headers)]
    await twins.change("/messages/send", names, form, parameter="", outcome=records, expected=sent)


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
        transaction = (await twins.admin.describe_transactions([name]))[name]
        return (
            transaction.code
            if isinstance(transaction, KafkaError)
            else (transaction.state, transaction.app_version)
        )

    form = {"again": "{}"}
    aborted = ("CompleteAbort", -1)
    await twins.change("/transactions/abort", names, form, parameter="id", outcome=state, expected=aborted)
    gone = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    await twins.change("/transactions/forget", names, form, parameter="id", outcome=state, expected=gone)
    for producer in producers:
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
        await producer.stop()
