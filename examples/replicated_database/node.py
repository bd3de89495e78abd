"""One process of the database: `python -m examples.replicated_database.node --help`.

It has a replica of all partitions, and is the master of the partitions that the group assigns to it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sqlite3
from collections import defaultdict
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from ottla import (
    GROUP_RESOURCE,
    Admin,
    ClientClosed,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    RebalanceListener,
    TopicPartition,
)

from . import snapshots
from .changes import Names, Statement, partition_of
from .lines import LINE_BYTES_MAX, Line, Said, dialled
from .master import ANSWER_S, Doubtful, Led, Master, NotMaster, Placed
from .replica import NotReady, Replica

logger = logging.getLogger(__name__)
JOIN_S = 5.0
"""Time in seconds that a transaction waits for its turn in another partition."""


class Refused(Exception):
    """An error: another master did not join."""


class Node(RebalanceListener):
    """A server for requests; the group assigns the partitions that it is the master of."""

    def __init__(self, replica: Replica, address: str, group: Consumer) -> None:
        self._replica = replica
        self._address = address
        self._group = group
        self._masters: dict[int, Master] = {}

    # ------------------------------------------------------------ the group

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        """Begin to take over. An assignment is not yet mastership: `Master` takes over first."""
        for _, index in partitions:
            self._masters[index] = Master(self._replica, index, self._group)

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        """Stop being the master; the next node gets the partitions after this returns."""
        gone = [self._masters.pop(index) for _, index in partitions]
        await asyncio.gather(*(master.resign() for master in gone))

    async def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        """Stop being the master. Other nodes may already be; the log refuses any transaction still under way."""
        await self.on_partitions_revoked(partitions)

    # ------------------------------------------------------------ requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, one request after the other."""
        line = Line(reader, writer)
        try:
            while True:
                await line.say(await self._answered(line))
        except ConnectionError:
            logger.debug("a client hung up")
        except Exception:
            logger.exception("a request failed")
        finally:
            await line.close()

    async def _answered(self, line: Line) -> Said:
        request = await line.hear()
        try:
            return await self._done(line, request)
        except (NotMaster, NotReady) as error:
            return {"error": "not here", "message": str(error)}
        except (Doubtful, TimeoutError, KafkaError) as error:
            return {"error": "in doubt", "message": str(error)}
        except (sqlite3.Error, ValueError, TypeError, LookupError, Refused) as error:
            return {"error": "refused", "message": f"{type(error).__name__}: {error}"}

    async def _done(self, line: Line, request: Said) -> Said:
        match request:
            case {"write": list(statements)}:
                placed = await self._write([Statement(**statement) for statement in statements])
                return {"placed": placed}
            case {"read": {"key": str(key), "sql": str(sql), "args": list(args)}}:
                where, rows = await self._master(self._partition(key)).read(sql, args)
                return {"placed": where, "rows": rows}
            case {"view": {"sql": str(sql), "args": list(args)}}:
                return self._replica.view(sql, args)._asdict()
            case {"where": str(key)}:
                return {"master": (await self._addresses()).get(self._partition(key))}
            case {"reigning": _}:
                return {"partitions": self.reigning()}
            case {"join": {"partition": int(index), "token": str(token), "statements": list(statements)}}:
                return await self._join(
                    line, index, token, [Statement(**statement) for statement in statements]
                )
            case unknown:
                raise ValueError(f"a request is write, read, view, where or reigning, not {sorted(unknown)}")

    async def _write(self, statements: list[Statement]) -> list[Placed]:
        """Run all statements or none, in any partitions."""
        parts: defaultdict[int, list[Statement]] = defaultdict(list)
        for statement in statements:
            parts[self._partition(statement.key)].append(statement)
        # All transactions lock partitions in the same order, so no two wait for each other.
        first, *others = sorted(parts)
        async with AsyncExitStack() as stack:
            lines: list[Line] = []
            led: Led | None = None
            try:
                async with self._master(first).lead(parts[first]) as led:
                    for index in others:
                        lines.append(await self._called(stack, index))
                        await self._include(led, lines[-1], index, parts[index])
            except Doubtful:
                raise  # and close the connections: the other masters read the log, too
            except BaseException:
                await _tell(lines, None)
                raise
            await _tell(lines, led.commit_index)
            return led.placed

    async def _called(self, stack: AsyncExitStack, index: int) -> Line:
        address = (await self._addresses()).get(index)
        if address is None:
            raise NotMaster(f"partition {index} has no master")
        try:
            return await stack.enter_async_context(dialled(address))
        except ConnectionError as error:
            raise NotMaster(f"the master of partition {index} does not answer: {error}") from error

    async def _include(self, led: Led, line: Line, index: int, statements: list[Statement]) -> None:
        part = {
            "partition": index,
            "token": led.token,
            "statements": [statement._asdict() for statement in statements],
        }
        try:
            async with asyncio.timeout(JOIN_S):
                answer = await line.ask({"join": part})
        except (ConnectionError, TimeoutError) as error:
            raise Refused(f"partition {index} did not join: {error or 'no answer in time'}") from error
        if "error" in answer:
            kind = NotMaster if answer["error"] == "not here" else Refused
            raise kind(f"partition {index} did not join: {answer['message']}")
        led.include(answer["receipt"], Placed(*answer["placed"]))

    async def _join(self, line: Line, index: int, token: str, statements: list[Statement]) -> Said:
        """Send the receipt, and receive the outcome. A closed connection leaves the outcome open."""
        async with self._master(index).join(token, statements) as joined:
            try:
                async with asyncio.timeout(ANSWER_S):
                    ended = await line.ask({"receipt": str(joined.receipt), "placed": joined.placed})
                    joined.commit_index = ended["commit_index"]
            except (ConnectionError, TimeoutError) as error:
                raise Doubtful("the other master closed the connection before it sent the outcome") from error
        return {}

    # ------------------------------------------------------------ masters of partitions

    def _partition(self, key: str) -> int:
        return partition_of(key, len(self._replica.partitions))

    def _master(self, index: int) -> Master:
        if index not in self._masters:
            raise NotMaster(f"partition {index} has its master elsewhere")
        return self._masters[index]

    def reigning(self) -> list[int]:
        """Return the partitions that this node is now the master of."""
        return sorted(index for index, master in self._masters.items() if master.is_master)

    async def _addresses(self) -> dict[int, str]:
        """Return the address of the master of each partition. The members' client ids are their addresses."""
        async with Admin(bootstrap_servers=self._replica.bootstrap) as admin:
            (group,) = await admin.describe_groups([self._replica.names.masters])
        return {place.partition: member.client_id for member in group.members for place in member.partitions}


async def _tell(lines: list[Line], commit_index: int | None) -> None:
    for line in lines:
        with suppress(ConnectionError):
            await line.say({"commit_index": commit_index})


async def make_topics(bootstrap: str, names: Names, partitions: int, replicas: int) -> None:
    """Create the topics that do not exist."""
    safe = {"min.insync.replicas": str(max(1, replicas - 1))}
    kept = safe | {"retention.ms": "-1", "retention.bytes": "-1"}
    newest = safe | {"cleanup.policy": "compact", "max.message.bytes": str(snapshots.ROW_BYTES_MAX)}
    topics = [
        NewTopic(names.log, partitions, replicas, configs=kept),
        NewTopic(names.masters, partitions, replicas, configs=safe),
        NewTopic(names.snapshots, 1, replicas, configs=newest),
    ]
    async with Admin(bootstrap_servers=bootstrap) as admin:
        for topic in topics:
            try:
                await admin.create_topics([topic])
            except KafkaError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise


async def set_session(bootstrap: str, group: str, session_ms: int) -> None:
    """Let the group reassign the partitions of a node that is silent for `session_ms`.

    Without the right to set it, or below the cluster's minimum, the group's session stays unchanged.
    """
    session = {
        "consumer.session.timeout.ms": str(session_ms),
        "consumer.heartbeat.interval.ms": str(session_ms // 3),
    }
    async with Admin(bootstrap_servers=bootstrap) as admin:
        try:
            await admin.alter_configs(GROUP_RESOURCE, group, session)
        except KafkaError as error:
            logger.warning(
                "partitions of a node that dies take no writes until the group's session ends; "
                "a session of %d ms is refused: %s",
                session_ms,
                error,
            )


async def run(options: argparse.Namespace) -> None:
    """Run until SIGTERM or Control-C."""
    names = Names(options.name)
    await make_topics(options.bootstrap, names, options.partitions, options.replicas)
    if not options.replica_only:
        await set_session(options.bootstrap, names.masters, options.session_ms)
    replica = Replica(options.bootstrap, names, options.folder, options.partitions)
    address = f"{options.host}:{options.port}"
    group = Consumer(
        bootstrap_servers=options.bootstrap,
        client_id=address,
        group_id=names.masters,
        group_protocol="consumer",
        isolation_level="read_committed",
    )
    node = Node(replica, address, group)
    if not options.replica_only:
        group.subscribe([names.masters], listener=node)
    server = await asyncio.start_server(node.serve, options.host, options.port, limit=LINE_BYTES_MAX)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with group:
        work = [ended.wait(), replica.follow(), _write_snapshots(node, replica, options.snapshot_s)]
        if not options.replica_only:
            work.append(_be_a_member(group))
        tasks = [asyncio.create_task(each) for each in work]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        server.close()
    for task in done:
        task.result()


async def _be_a_member(group: Consumer) -> None:
    """Stay a member of the group by waiting for records, which never arrive."""
    while True:
        try:
            await group.getone()
        except ClientClosed:
            return
        except KafkaError as error:
            logger.warning("the group cannot be reached: %s", error)
            await asyncio.sleep(1)


async def _write_snapshots(node: Node, replica: Replica, every_s: float) -> None:
    """Write snapshots periodically, if this node is the master of the first partition."""
    while True:
        await asyncio.sleep(every_s)
        if 0 in node.reigning():
            try:
                await snapshots.write(replica)
            except KafkaError as error:
                logger.warning("no snapshot was written: %s", error)


def main() -> None:
    """Run a node."""
    parser = argparse.ArgumentParser(prog="python -m examples.replicated_database.node", description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="brokers of the Ottla cluster")
    parser.add_argument("--name", default="bank", help="the database: the name of its topic")
    parser.add_argument("--partitions", type=int, default=4, help="of the database, if it is made now")
    parser.add_argument("--replicas", type=int, default=3, help="of each topic, if it is made now")
    parser.add_argument("--folder", type=Path, required=True, help="for the SQLite files of this node")
    parser.add_argument("--port", type=int, required=True, help="where clients and other nodes connect")
    parser.add_argument("--host", default="127.0.0.1", help="the address of that port; there is no login")
    parser.add_argument("--replica-only", action="store_true", help="never be a master")
    parser.add_argument(
        "--session-ms", type=int, default=3000, help="silence after which a node is no master any more"
    )
    parser.add_argument("--snapshot-s", type=float, default=60, help="seconds between snapshots")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
