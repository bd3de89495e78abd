"""A fake cluster whose brokers tell of their folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ottla.client.admin import LogDirDescription
from ottla.client.records import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.console.fakes import FakeAdmin

FOLDER = LogDirDescription(
    "/data/a", None, 1000, 50, {TopicPartition("orders", 0): 300, TopicPartition("payments", 1): 400}
)
BROKEN = LogDirDescription("/data/b", KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "it is offline"), -1, -1, {})


class FoldersAdmin(FakeAdmin):
    """Brokers 1 and 2 tell of their folders, 3 does not. The setting of brokers says which are cordoned."""

    def cordoned(self) -> set[str]:
        return set(self.settings.get("1", {}).get("cordoned.log.dirs", "").split(","))

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None
    ) -> dict[int, list[LogDirDescription] | KafkaError]:
        folders = [replace(folder, is_cordoned=folder.path in self.cordoned()) for folder in (FOLDER, BROKEN)]
        answers = {1: folders, 2: [], 3: KafkaError(ErrorCode.REQUEST_TIMED_OUT, "broker 3 is silent")}
        return {broker: answers[broker] for broker in (answers if brokers is None else brokers)}
