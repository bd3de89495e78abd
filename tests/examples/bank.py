"""A bank in the example database: tellers that move money while processes fail, and checks of all their observations.

Each transfer leaves a receipt in the payer's partition. So at the end every balance can be computed from the receipts
alone, including transfers with an unknown outcome.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field

from examples.replicated_database.changes import Change, Statement, partition_of
from examples.replicated_database.client import Database, Rejected
from examples.replicated_database.lines import dialled
from examples.replicated_database.master import Doubtful, Placed
from ottla import Consumer, ErrorCode, KafkaError
from tests.cluster import PAUSE_S, wait_until
from tests.examples.database_nodes import DatabaseNode

ACCOUNTS = [f"account-{number}" for number in range(12)]
BALANCE = 100
PARTITIONS = 4
LOOK = "SELECT coalesce(sum(balance), 0), count(*) FILTER (WHERE id LIKE 'account-%') FROM accounts"
END_S = 90.0
"""Seconds after the last fault within which every replica is complete."""


@dataclass(frozen=True)
class Seen:
    """An observed SCN of a partition, at some moment between two times."""

    began_s: float
    ended_s: float
    placed: Placed


@dataclass
class Bank:
    """Tellers in a separate thread, from the start of the block to its end."""

    bootstrap: str
    name: str
    nodes: Sequence[DatabaseNode]
    seed: int = 0
    tellers: int = 3
    acknowledged: dict[str, list[Placed]] = field(default_factory=dict)
    """Places of a transfer's parts, by receipt."""
    in_doubt: set[str] = field(default_factory=set)
    rejected: set[str] = field(default_factory=set)
    writes: list[Seen] = field(default_factory=list)
    reads: list[Seen] = field(default_factory=list)
    views: int = 0
    error: BaseException | None = None
    _number: int = 0

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bank")
        self.database = Database([node.address for node in self.nodes], patience_s=5, answer_s=8)

    def __enter__(self) -> Bank:
        self._thread.start()
        wait_until(lambda: self.acknowledged or self.error, "the first transfer", END_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def wait_for_transfers(self, count: int, timeout_s: float = END_S) -> None:
        """Return once `count` further transfers were acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_until(
            lambda: len(self.acknowledged) >= wanted or self.error, f"{count} more transfers", timeout_s
        )
        self.raise_error()

    def master_of(self, partition: int) -> DatabaseNode:
        """Return the node that accepts writes for a partition; waits for one."""
        found: list[DatabaseNode] = []

        def look() -> bool:
            found[:] = [node for node in self.nodes if partition in reigning(node)]
            return bool(found)

        wait_until(look, f"a master of partition {partition}", END_S)
        return found[0]

    @contextmanager
    def asking(self, node: DatabaseNode, partition: int) -> Iterator[None]:
        """Send a read and a write of a partition to this node, master or asleep, before the block; both have ended at
        the block's end.
        """
        account = next(
            candidate for candidate in ACCOUNTS if partition_of(candidate, PARTITIONS) == partition
        )
        asked = threading.Event()
        threads = [
            threading.Thread(target=asyncio.run, args=(each,))
            for each in (self._read_at(node, account, asked), self._write_at(node, account))
        ]
        threads[0].start()
        asked.wait(END_S)  # first the read: a node that has failed to write knows that it is not the master
        threads[1].start()
        yield
        for thread in threads:
            thread.join()

    async def _read_at(self, node: DatabaseNode, account: str, asked: threading.Event) -> None:
        began_s = time.monotonic()
        question = {"key": account, "sql": "SELECT count(*) FROM accounts", "args": []}
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(END_S), dialled(node.address) as line:
                await line.say({"read": question})
                asked.set()
                answer = await line.hear()
                if "placed" in answer:
                    self.reads.append(Seen(began_s, time.monotonic(), Placed(*answer["placed"])))

    async def _write_at(self, node: DatabaseNode, account: str) -> None:
        self._number += 1
        receipt = f"receipt-{self._number}"
        began_s = time.monotonic()
        note = json.dumps({"payer": account, "payee": account, "amount": 0})
        self.in_doubt.add(receipt)
        statement = Statement(account, "INSERT INTO accounts VALUES (?, 0, ?)", [receipt, note])
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(END_S), dialled(node.address) as line:
                answer = await line.ask({"write": [statement._asdict()]})
                if "placed" in answer:
                    self.acknowledged[receipt] = [Placed(*place) for place in answer["placed"]]
                    self.writes += [
                        Seen(began_s, time.monotonic(), place) for place in self.acknowledged[receipt]
                    ]

    def raise_error(self) -> None:
        """Raise a teller's forbidden observation."""
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:
            self.error = error

    async def _work(self) -> None:
        patient = Database([node.address for node in self.nodes], patience_s=END_S)
        for account in ACCOUNTS:
            await patient.write(
                Statement(account, "INSERT INTO accounts (id, balance) VALUES (?, ?)", [account, BALANCE])
            )
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.tellers):
                tasks.create_task(self._transfer_on(random.Random(f"{self.seed} {number}")))
            tasks.create_task(self._read_on(random.Random(self.seed)))
            tasks.create_task(self._look_on(random.Random(self.seed)))

    async def _transfer_on(self, chance: random.Random) -> None:
        while not self._over.is_set():
            payer, payee = chance.sample(ACCOUNTS, 2)
            amount = chance.randrange(1, 20)
            self._number += 1
            receipt = f"receipt-{self._number}"
            note = json.dumps({"payer": payer, "payee": payee, "amount": amount})
            began_s = time.monotonic()
            try:
                placed = await self.database.write(
                    Statement(
                        payer, "UPDATE accounts SET balance = balance - ? WHERE id = ?", [amount, payer]
                    ),
                    Statement(payer, "INSERT INTO accounts VALUES (?, 0, ?)", [receipt, note]),
                    Statement(
                        payee, "UPDATE accounts SET balance = balance + ? WHERE id = ?", [amount, payee]
                    ),
                )
            except Rejected:
                self.rejected.add(receipt)
            except Doubtful:
                self.in_doubt.add(receipt)
            else:
                self.acknowledged[receipt] = placed
                self.writes += [Seen(began_s, time.monotonic(), place) for place in placed]
            await asyncio.sleep(PAUSE_S)

    async def _read_on(self, chance: random.Random) -> None:
        while not self._over.is_set():
            began_s = time.monotonic()
            with suppress(Rejected, Doubtful):
                found = await self.database.read(chance.choice(ACCOUNTS), "SELECT count(*) FROM accounts")
                self.reads.append(Seen(began_s, time.monotonic(), found.placed))
            await asyncio.sleep(PAUSE_S)

    async def _look_on(self, chance: random.Random) -> None:
        """Read whole transactions at any node at any time: no money is ever in transit."""
        while not self._over.is_set():
            node = chance.choice(self.nodes)
            with suppress(Doubtful, TimeoutError):
                async with asyncio.timeout(1):  # some are asleep
                    view = await self.database.view(node.address, LOOK)
                total, accounts = map(sum, zip(*(rows[0] for rows in view.rows), strict=True))
                assert total == accounts * BALANCE, (
                    f"{total} in {accounts} accounts at node {node.id}: {view}"
                )
                self.views += accounts == len(ACCOUNTS)
            await asyncio.sleep(0.05)

    # ------------------------------------------------------------ checks

    def check(self) -> None:
        """Check everything; all nodes must run and all faults be over."""
        self.raise_error()
        log = asyncio.run(log_of(self.bootstrap, self.name))
        ends = [
            max(
                [change.scn or 0 for _, change in changes] + [node.place(partition)[1] for node in self.nodes]
            )
            for partition, changes in enumerate(log)
        ]
        for partition, changes in enumerate(log):
            check_order(partition, changes)
        for node in self.nodes:
            for partition, end in enumerate(ends):
                wait_until(
                    lambda node=node, partition=partition, end=end: node.place(partition)[1] == end,  # type: ignore[misc]
                    f"SCN {end} of partition {partition} at node {node.id}",
                    END_S,
                )
        self.check_acknowledged(log)
        rows = [self.nodes[0].rows(partition) for partition in range(PARTITIONS)]
        for node in self.nodes[1:]:
            assert [node.rows(partition) for partition in range(PARTITIONS)] == rows, (
                f"node {node.id} differs"
            )
        self.check_money({str(row[0]): row for some in rows for row in some})
        check_real_time(self.writes, self.reads)
        assert self.views, "no read was made at a replica"

    def check_acknowledged(self, log: list[list[tuple[int, Change]]]) -> None:
        """Check that each acknowledgement is in the log once, unless the log was cut there after a snapshot."""
        firsts = [min((change.scn for _, change in some if change.scn), default=math.inf) for some in log]
        places: set[tuple[int, int]] = set()
        for receipt, parts in self.acknowledged.items():
            indexes = set()
            for place in parts:
                assert place[::2] not in places, (
                    f"SCN {place.scn} of partition {place.partition} was acknowledged twice"
                )
                places.add((place.partition, place.scn))
                if place.scn < firsts[place.partition]:
                    continue
                ((index, change),) = [each for each in log[place.partition] if each[1].scn == place.scn]
                assert change.generation == place.generation, f"{receipt}: {place} is {change}"
                indexes.add(index)
            assert len(indexes) <= 1, f"{receipt} is torn: {indexes}"

    def check_money(self, rows: dict[str, tuple[object, ...]]) -> None:
        """Check that balances equal the sums of the receipts, and that receipts agree with the tellers' answers."""
        receipts = {key for key in rows if key.startswith("receipt-")}
        assert self.acknowledged.keys() <= receipts, "an acknowledged transfer is gone"
        assert not self.rejected & receipts, "a rejected transfer is there"
        balances = dict.fromkeys(ACCOUNTS, BALANCE)
        for receipt in receipts:
            moved = json.loads(str(rows[receipt][2]))
            balances[moved["payer"]] -= moved["amount"]
            balances[moved["payee"]] += moved["amount"]
        assert {key: rows[key][1] for key in ACCOUNTS} == balances


def check_order(partition: int, changes: list[tuple[int, Change]]) -> None:
    """Check that SCNs have no gap and no tie, and that generations never go back."""
    assert changes == sorted(changes, key=lambda entry: entry[0])
    generations = [change.generation for _, change in changes]
    assert generations == sorted(generations), (
        f"partition {partition}: an older generation wrote after a newer one"
    )
    counted = [change for _, change in changes if change.scn is not None]
    scns = [change.scn or 0 for change in counted]
    assert not scns or scns == list(range(scns[0], scns[0] + len(scns))), f"partition {partition}: {scns}"
    assert all(change.follows == (change.scn or 0) - 1 for change in counted)


def check_real_time(writes: list[Seen], reads: list[Seen]) -> None:
    """Check linearizability: a read has seen every write that ended before the read began, and none that began after
    its end.
    """
    for partition in range(PARTITIONS):
        seen = [operation for operation in (*writes, *reads) if operation.placed.partition == partition]
        ended = sorted(seen, key=lambda operation: operation.ended_s)
        newest, position = 0, 0
        for read in sorted(
            (operation for operation in reads if operation.placed.partition == partition),
            key=lambda r: r.began_s,
        ):
            while ended[position].ended_s < read.began_s:
                newest = max(newest, ended[position].placed.scn)
                position += 1
            assert read.placed.scn >= newest, f"a stale read: {read}, when SCN {newest} had been seen"
        for write in writes:
            if write.placed.partition == partition:
                early = [r for r in reads if r.placed[::2] >= write.placed[::2] and r.ended_s < write.began_s]
                assert not [operation for operation in early if operation.placed.partition == partition], (
                    f"{early} before {write}"
                )


async def log_of(bootstrap: str, name: str) -> list[list[tuple[int, Change]]]:
    """Return the log by partition: commit index and change."""
    async with asyncio.timeout(END_S):
        while True:
            try:
                return await _read_log(bootstrap, name)
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                # A snapshot had it cut off in front of the reader, who is to see all that is left.


async def _read_log(bootstrap: str, name: str) -> list[list[tuple[int, Change]]]:
    found: list[list[tuple[int, Change]]] = [[] for _ in range(PARTITIONS)]
    async with (
        Consumer(name, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
        aclosing(consumer.transactions(cuts=True)) as elements,
    ):
        async for element in elements:
            if not element.records:
                break
            for place, records in element.records.items():
                changes = [Change.decode(record.value) for record in records]
                found[place.partition] += [(element.commit_index or 0, change) for change in changes]
    return found


def reigning(node: DatabaseNode) -> list[int]:
    """Return the partitions whose master a node is now; empty if it does not answer soon."""

    async def ask() -> list[int]:
        async with asyncio.timeout(2), dialled(node.address) as line:
            found: list[int] = (await line.ask({"reigning": {}}))["partitions"]
            return found

    with suppress(ConnectionError, TimeoutError):
        return asyncio.run(ask())
    return []
