"""Memory of a broker and of the quorum's leader while topics, groups, connections and transactional ids come and go.

    python -m benchmarks.churn [--minutes N] [--pace X] [--record FILE]

`--pace` rounds begin in each second. A round creates five topics and deletes those of the previous round. It commits
offsets of twenty new groups, deletes half of them and lets the others expire. It lets a member join one more group and
leave. It opens a hundred connections with different client ids, and begins eight transactional ids, which expire too.

A table shows the resident memory of each process every `--every` seconds, and finally its slope over the second half. A
lasting slope means memory that is never freed.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

from ottla import Admin, NewTopic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups import (
    DeleteGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
)
from ottla.protocol.messages.headers import decode_response, encode_request
from ottla.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.wire.schema import Message

from .clusters import ottla_cluster
from .rounds import record

TOPICS, GROUPS, CONNECTIONS, TRANSACTIONAL_IDS = 5, 20, 100, 8
STAYING = "stays"
SETTINGS = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "10000",
    "transactional.id.expiration.ms": "60000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "10000",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
}


class Peer:
    """A connection that sends one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader, self._writer, self._client_id = reader, writer, client_id

    @classmethod
    async def connect(cls, bootstrap: str, client_id: str) -> Peer:
        host, _, port = bootstrap.partition(":")
        return cls(*await asyncio.open_connection(host, int(port)), client_id)

    async def ask(self, message: Message, version: int) -> Any:
        self._writer.write(encode_request(message, version, 1, self._client_id))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        kind: Any = type(message)
        _, answer = decode_response(kind, await self._reader.readexactly(size), version)
        return answer

    def close(self) -> None:
        self._writer.close()


class Churn:
    """Rounds of short-lived topics, groups, connections and transactional ids at one broker."""

    def __init__(self, bootstrap: str, admin: Admin, peer: Peer) -> None:
        self._bootstrap, self._admin, self._peer = bootstrap, admin, peer
        self._topics: list[str] = []
        self.rounds = 0
        self.errors = 0

    async def round(self) -> None:
        number = self.rounds = self.rounds + 1
        created = [f"churn-{number}-{k}" for k in range(TOPICS)]
        await self._admin.create_topics([NewTopic(name, 2, 1) for name in created])
        if self._topics:
            await self._admin.delete_topics(self._topics)
        self._topics = created
        await self._groups(number)
        for k in range(TRANSACTIONAL_IDS):
            message = InitProducerIdRequest(
                transactional_id=f"churn-{number}-{k}", transaction_timeout_ms=60_000
            )
            self._count((await self._peer.ask(message, 4)).error_code)
        await asyncio.gather(*(self._visit(f"visitor-{number}-{k}") for k in range(CONNECTIONS)))

    async def _groups(self, number: int) -> None:
        names = [f"churn-{number}-{k}" for k in range(GROUPS)]
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=0, committed_metadata=f"of round {number}"
        )
        topic = OffsetCommitRequestTopic(name=STAYING, partitions=[partition])
        for name in names:
            answer = await self._peer.ask(OffsetCommitRequest(group_id=name, topics=[topic]), 7)
            self._count(answer.topics[0].partitions[0].error_code)
        answer = await self._peer.ask(DeleteGroupsRequest(groups_names=names[::2]), 2)
        for result in answer.results:
            self._count(result.error_code)
        group = f"churn-{number}-joined"
        join = JoinGroupRequest(
            group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )  # fmt: skip
        joined = await self._peer.ask(join, 3)
        self._count(joined.error_code)
        left = await self._peer.ask(LeaveGroupRequest(group_id=group, member_id=joined.member_id), 2)
        self._count(left.error_code)

    async def _visit(self, client_id: str) -> None:
        visitor = await Peer.connect(self._bootstrap, client_id)
        await visitor.ask(ApiVersionsRequest(client_software_name="churn", client_software_version="1"), 3)
        visitor.close()

    def _count(self, error_code: int) -> None:
        self.errors += error_code != ErrorCode.NONE


async def _prepared(bootstrap: str, peer: Peer, admin: Admin) -> None:
    """Wait until the offsets topic exists, and this broker coordinates groups and transactions."""
    await admin.create_topics([NewTopic(STAYING, 1, 1)])
    for key_type in (0, 1):
        ask = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"])
        while (await peer.ask(ask, 4)).coordinators[0].error_code:
            await asyncio.sleep(0.1)
    while True:
        topic = OffsetCommitRequestTopic(
            name=STAYING, partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
        )
        answer = await peer.ask(OffsetCommitRequest(group_id="first", topics=[topic]), 7)
        if not answer.topics[0].partitions[0].error_code:
            return
        await asyncio.sleep(0.1)


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def slope_mb_per_hour(readings: list[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line through (seconds, MB)."""
    mean_s = sum(at for at, _ in readings) / len(readings)
    mean_mb = sum(mb for _, mb in readings) / len(readings)
    spread = sum((at - mean_s) ** 2 for at, _ in readings)
    return 3600 * sum((at - mean_s) * (mb - mean_mb) for at, mb in readings) / spread


async def churn(
    bootstrap: str, pids: dict[str, int], minutes: float, pace: float, every_s: float
) -> dict[str, object]:
    """Run the rounds; return the readings of each process, and the numbers of created things."""
    peer = await Peer.connect(bootstrap, "churn")
    readings: dict[str, list[tuple[float, float]]] = {name: [] for name in pids}
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await _prepared(bootstrap, peer, admin)
        work = Churn(bootstrap, admin, peer)
        began_s = told_s = time.monotonic()
        while (now_s := time.monotonic()) < began_s + minutes * 60:
            if now_s >= told_s:
                for name, pid in pids.items():
                    readings[name].append((round(now_s - began_s, 1), round(resident_mb(pid), 1)))
                told = "  ".join(f"{name} {rows[-1][1]:6.1f} MB" for name, rows in readings.items())
                print(
                    f"{now_s - began_s:6.0f} s  {work.rounds:5} rounds  {told}  {work.errors} errors",
                    flush=True,
                )
                told_s += every_s
            await work.round()
            await asyncio.sleep(max(0.0, began_s + work.rounds / pace - time.monotonic()))
    peer.close()
    slopes = {name: round(slope_mb_per_hour(rows[len(rows) // 2 :]), 2) for name, rows in readings.items()}
    print("MB per hour over the second half:", slopes)
    return {"rounds": work.rounds, "errors": work.errors, "slopes": slopes, "readings": readings}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--every", type=float, default=10)
    parser.add_argument("--record", type=Path)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        ottla_cluster(Path(folder), brokers=1, quorum=1, settings=SETTINGS) as cluster,
    ):
        pids = {"broker": cluster.brokers[0].pid, "quorum": cluster.quorum[0].pid}
        found = asyncio.run(churn(cluster.bootstrap, pids, args.minutes, args.pace, args.every))
    if args.record is not None:
        record(args.record, minutes=args.minutes, pace=args.pace, **found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
