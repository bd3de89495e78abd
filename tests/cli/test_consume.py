"""`ottla consume -e` and partitions that lose their leaders while it reads. No cluster."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from ottla.cli.commands import consume
from ottla.cli.failures import CommandFailed
from ottla.client.records import ConsumerRecord, TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeAdmin:
    """An admin client that answers an offset for each partition, or an error once its leader is gone."""

    def __init__(self) -> None:
        self.gone: dict[TopicPartition, KafkaError] = {}
        self.asked = 0

    async def list_offsets(self, wanted: Any, *, read_committed: bool) -> dict[TopicPartition, Any]:
        self.asked += 1
        return {
            partition: self.gone.get(partition, 0 if stamp == consume.EARLIEST else 2)
            for partition, stamp in wanted.items()
        }


class FakeConsumer:
    """A consumer with two records in partition 0, and one of the two in partition 1, whose leader goes then."""

    def __init__(self, admin: FakeAdmin, error: KafkaError) -> None:
        self.positions = {ZERO: 0, ONE: 0}
        self._admin, self._error = admin, error
        self._left = [
            {ZERO: [ConsumerRecord("t", 0, offset, 0, None, b"0") for offset in (0, 1)]},
            {ONE: [ConsumerRecord("t", 1, 0, 0, None, b"1")]},
        ]

    def assignment(self) -> set[TopicPartition]:
        return {ZERO, ONE}

    async def getmany(self, **options: Any) -> dict[TopicPartition, list[ConsumerRecord]]:
        if not self._left:
            self._admin.gone[ONE] = self._error
            return {}
        found = self._left.pop(0)
        for partition, records in found.items():
            self.positions[partition] += len(records)
        return found

    async def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]


@pytest.mark.parametrize("where", [("beginning", 0), ("timestamp", 7)])
async def test_a_leader_that_goes_while_others_are_read_is_named(
    where: tuple[str, int], monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(consume, "SILENCE_S", 0.0)
    admin: Any = FakeAdmin()
    places = consume.Places(admin, where, read_committed=False)
    assert set(await places.ask([ZERO, ONE])) == {ZERO, ONE}
    error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "t-1 has no leader now")
    reader: Any = FakeConsumer(admin, error)
    arguments = argparse.Namespace(count=None, exit=True, group=None)
    with pytest.raises(CommandFailed, match=r"not all records are printed: t-1: .*LEADER_NOT_AVAILABLE"):
        await consume._print(arguments, reader, places, lambda record: record.value or b"")
    assert capfdbinary.readouterr().out == b"001"


async def test_a_refusal_that_does_not_pass_is_raised() -> None:
    admin: Any = FakeAdmin()
    admin.gone[ONE] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    with pytest.raises(KafkaError, match="no"):
        await consume.Places(admin, ("end", 0), read_committed=True).ask([ZERO, ONE])
