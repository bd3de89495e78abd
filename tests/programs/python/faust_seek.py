"""A rebalance of Faust's consumer, with this script in place of a cluster: which messages are delivered after it?

Faust's code is unchanged. The script calls it in the order in which Faust's app and its recovery of tables do, or seeks
before partitions go on.

python faust_seek.py as-faust
python faust_seek.py seek-first
"""

import asyncio
import json
import logging
import sys

import faust
from faust.transport.consumer import Consumer, Fetcher
from faust.types import TP, Message

COMMITTED, LAST = 11, 41
HERE = TP("events", 0)


class Cluster(Consumer):
    """A consumer of one partition. The cluster's answers come when the script permits it."""

    logger = logging.getLogger("consumer")
    consumer_stopped_errors = ()

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.offset = COMMITTED
        self.committed_known = asyncio.Event()
        self.has_all = asyncio.Event()

    async def _getmany(self, active_partitions, **_):
        if HERE not in active_partitions or self.offset == LAST:
            self.has_all.set()
            await asyncio.sleep(0.01)
            return {}
        found, self.offset = range(self.offset, LAST), LAST
        return {HERE: list(found)}

    def _to_message(self, tp, record):
        return Message(*tp, record, 0.0, 0, {}, None, None, None, tp=tp)

    async def seek_to_committed(self):
        await self.committed_known.wait()
        self.offset = COMMITTED
        return {HERE: COMMITTED}

    def assignment(self):
        return {HERE}

    def highwater(self, tp):
        return LAST

    async def _seek(self, partition, offset): ...
    async def _commit(self, offsets): ...
    async def create_topic(self, topic, partitions, replication, **more): ...
    async def earliest_offsets(self, *partitions): ...
    async def highwaters(self, *partitions): ...
    async def position(self, tp): ...
    async def seek_wait(self, partitions): ...
    async def subscribe(self, topics): ...
    def _new_topicpartition(self, topic, partition): ...
    def key_partition(self, topic, key, partition=None): ...
    def topic_partitions(self, topic): ...


def go_on(consumer):
    consumer.resume_flow()
    consumer.resume_partitions({HERE})


async def main() -> None:
    app = faust.App("counter", broker="kafka://nobody", store="memory://")
    buffer = []  # that of an agent's stream
    arrived = {28: asyncio.Event(), 34: asyncio.Event()}
    let_go = {28: asyncio.Event(), 34: asyncio.Event()}

    async def deliver(message):
        if message.offset in arrived:
            arrived[message.offset].set()
            await let_go[message.offset].wait()
        buffer.append(message.offset)

    async def revoked(partitions):  # as App._on_partitions_revoked
        consumer.stop_flow()
        consumer.pause_partitions(partitions)
        buffer.clear()

    async def assigned(partitions, generation):  # as App._on_partitions_assigned
        consumer.pause_partitions(partitions)

    consumer = Cluster(
        app.transport, callback=deliver, on_partitions_revoked=revoked, on_partitions_assigned=assigned
    )
    consumer._set_active_tps({HERE})
    draining = asyncio.create_task(consumer._drain_messages(Fetcher(app)))

    # Messages before 28 are in the buffer, and 28 waits, when partitions are taken away and given again.
    await arrived[28].wait()
    await consumer.on_partitions_revoked({HERE})
    while consumer._read_offset[HERE] != 28:  # its partition is revoked, and counts as read
        await asyncio.sleep(0)
    let_go[28].set()
    consumer.offset = COMMITTED
    await consumer.on_partitions_assigned({HERE}, 1)

    if sys.argv[1] == "as-faust":  # RecoveryService.on_recovery_completed
        go_on(consumer)
        seeking = asyncio.create_task(consumer.perform_seek())
        await arrived[34].wait()
        consumer.committed_known.set()
        await seeking
    else:
        consumer.committed_known.set()
        await consumer.perform_seek()
        go_on(consumer)
    consumer.has_all.clear()
    let_go[34].set()
    await consumer.has_all.wait()
    draining.cancel()
    print(json.dumps({"offset": consumer.offset, "delivered": buffer}))


asyncio.run(main())
