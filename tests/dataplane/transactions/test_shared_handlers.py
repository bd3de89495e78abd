"""One transaction with many writers: requests over sockets, decided by the controller's real state machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from ottla.client.connections.connection import Connection
from ottla.dataplane.transactions.tokens import TRANSACTIONAL_ID_BYTES_MAX, JoinableTransaction
from ottla.protocol.cluster.transaction_table import Phase
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.producers import InitProducerIdRequest
from ottla.protocol.messages.shared_transactions import (
    BeginTransactionRequest,
    BeginTransactionResponse,
    CommittedWriter,
    CommitTransactionRequest,
    CommitTransactionResponse,
    JoinTransactionRequest,
    JoinTransactionResponse,
)
from ottla.protocol.messages.transaction_commands import ExpireTransactions, OpenTransaction
from tests.metadata_quorum.state.transactional import Identity

from .test_handlers import TOKENS, begun, served


async def begin(client: Connection, who: Identity, name: str = "x") -> BeginTransactionResponse:
    return await client.request(
        BeginTransactionRequest(transactional_id=name, producer_id=who[0], producer_epoch=who[1])
    )


async def join(client: Connection, token: str) -> JoinTransactionResponse:
    return await client.request(JoinTransactionRequest(token=token))


async def joined(client: Connection, token: str) -> Identity:
    answer = await join(client, token)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.producer_id, answer.producer_epoch


async def commit(
    client: Connection,
    who: Identity,
    writers: Iterable[Identity] = (),
    *,
    number: int = -1,
    version: int = -1,
    committed: bool = True,
) -> CommitTransactionResponse:
    chosen = [
        CommittedWriter(producer_id=producer_id, producer_epoch=epoch) for producer_id, epoch in writers
    ]
    return await client.request(
        CommitTransactionRequest(
            transactional_id="x",
            producer_id=who[0],
            producer_epoch=who[1],
            committed=committed,
            number=number,
            writers=chosen,
            app_version=version,
        )
    )


def next_of(answer: CommitTransactionResponse) -> Identity:
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.producer_id, answer.producer_epoch


async def test_what_chosen_writers_wrote_counts_and_nothing_else(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        broker, client, elsewhere = here.broker, await here.client(), await here.client()
        owner = await begun(client)
        opened = await begin(client, owner)
        assert (opened.error_code, opened.number) == (ErrorCode.NONE, 1)
        writers = [await joined(elsewhere, opened.token) for _ in range(3)]
        assert len({owner[0], *(producer_id for producer_id, _ in writers)}) == 4
        await broker.produce(owner, 0, adds="x")
        for writer in writers[:2]:
            await broker.produce(writer, 0, adds="x")
            await broker.produce(writer, 0, index=1, adds="x")
        ended = await commit(client, owner, [writers[0]], number=opened.number, version=7)
        assert next_of(ended) == (owner[0], owner[1] + 1)
        assert (ended.was_committed, ended.commit_index) == (False, 0)
        for index, end in ((0, 6), (1, 4)):
            partition = broker.partition(index=index)
            log, watermark = partition.log, partition.high_watermark
            assert log.transactions.last_stable_offset(watermark) == end, (
                "a reader that starts now sees the end"
            )
            assert [aborted.producer_id for aborted in log.transactions.aborted(0, end)] == [writers[1][0]]
        client.close()
        elsewhere.close()


async def test_beginning_again_gives_the_same_token_while_it_is_open(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        client = await here.client()
        owner = await begun(client)
        opened = await begin(client, owner)
        assert await begin(client, owner) == opened
        owner = next_of(await commit(client, owner))
        following = await begin(client, owner)
        assert following.number == opened.number + 1
        assert following.token != opened.token
        client.close()


async def find_or_begin(
    client: Connection, version: int = -1, timeout_ms: int = 60_000, name: str = "x"
) -> BeginTransactionResponse:
    request = BeginTransactionRequest(transactional_id=name, app_version=version, timeout_ms=timeout_ms)
    return await client.request(request)


async def test_whoever_comes_first_begins_and_all_others_find_it(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        broker, client, elsewhere = here.broker, await here.client(), await here.client()
        opened = await find_or_begin(client, 3)
        assert (opened.error_code, opened.number, opened.was_committed) == (ErrorCode.NONE, 1, False)
        assert await find_or_begin(elsewhere, 3) == opened
        owner = (opened.producer_id, opened.producer_epoch)
        writers = [await joined(elsewhere, opened.token) for _ in range(2)]
        for writer in writers:
            await broker.produce(writer, 0, adds="x")
        third = await here.client()  # it neither began the transaction nor joined
        ended = await commit(third, owner, writers[:1], number=opened.number, version=3)
        assert (ended.error_code, ended.was_committed, ended.commit_index) == (ErrorCode.NONE, False, 0)
        again = await commit(elsewhere, owner, writers[1:], number=opened.number, version=3)
        assert (again.error_code, again.commit_index) == (ErrorCode.NONE, 0), "it was decided, and once"
        partition = broker.partition()
        log = partition.log
        aborted = log.transactions.aborted(0, log.transactions.last_stable_offset(partition.high_watermark))
        assert [each.producer_id for each in aborted] == [writers[1][0]]
        for late in (3, 2):
            answer = await find_or_begin(client, late)
            assert (answer.error_code, answer.was_committed, answer.token) == (ErrorCode.NONE, True, "")
        following = await find_or_begin(client, 4)
        assert (following.number, following.was_committed) == (2, False)
        for each in (client, elsewhere, third):
            each.close()


@pytest.mark.parametrize(
    ("name", "version", "timeout_ms", "code"),
    [
        ("", -1, 60_000, ErrorCode.INVALID_REQUEST),
        ("x" * (TRANSACTIONAL_ID_BYTES_MAX + 1), -1, 60_000, ErrorCode.INVALID_REQUEST),
        ("x", -2, 60_000, ErrorCode.INVALID_REQUEST),
        ("x", 0, 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 0, 2**31 - 1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
async def test_what_cannot_begin_is_refused_before_the_quorum_is_asked(
    tmp_path: Path, name: str, version: int, timeout_ms: int, code: ErrorCode
) -> None:
    async with served(tmp_path) as here:
        here.broker.quorum.answers = False
        client = await here.client()
        assert (await find_or_begin(client, version, timeout_ms, name)).error_code == code
        client.close()


async def test_a_token_is_of_no_use_after_the_end(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        client = await here.client()
        owner = await begun(client)
        opened = await begin(client, owner)
        owner = next_of(await commit(client, owner))
        for _ in range(2):
            late = await join(client, opened.token)
            assert (late.error_code, late.producer_id) == (ErrorCode.INVALID_TXN_STATE, -1)
            assert late.error_message is not None
            assert "transaction 1 of 'x' is over" in late.error_message
            await begin(client, owner)
        client.close()


@pytest.mark.parametrize("token", ["", "v1.YWJj.YWJj", "v9.x.y", "x" * 30_000])
async def test_what_is_no_token_is_refused_before_the_quorum_is_asked(tmp_path: Path, token: str) -> None:
    async with served(tmp_path) as here:
        here.broker.quorum.answers = False
        client = await here.client()
        refused = await join(client, token)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert refused.error_message is not None
        assert "no token of a transaction" in refused.error_message
        client.close()


async def test_a_true_token_of_what_nobody_knows(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        client = await here.client()
        token = TOKENS.issue(JoinableTransaction("gone", 1, 0, 1))
        assert (await join(client, token)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        client.close()


async def test_who_may_not_begin(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        client = await here.client()
        stale = await begun(client)
        owner = await begun(client)
        assert (await begin(client, stale)).error_code == ErrorCode.PRODUCER_FENCED
        opened = await begin(client, owner)
        writer = await joined(client, opened.token)
        assert (await begin(client, writer)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert (await begin(client, owner, "y")).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        too_long = await begin(client, owner, "n" * (TRANSACTIONAL_ID_BYTES_MAX + 1))
        assert too_long.error_code == ErrorCode.INVALID_REQUEST
        client.close()


async def test_a_commit_that_is_wrong_in_any_part_decides_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        client = await here.client()
        owner = await begun(client)
        opened = await begin(client, owner)
        writer = await joined(client, opened.token)
        wrong = [
            await commit(client, owner, [writer, (writer[0] + 100, 0)]),
            await commit(client, owner, [(writer[0], writer[1] + 1)]),
            await commit(client, owner, [writer], number=opened.number + 1),
            await commit(client, owner, [writer], number=0, version=3),
            await commit(client, (owner[0], owner[1] + 1), [writer]),
            await commit(client, writer, [writer]),
            await commit(client, owner, [writer], version=-2),
        ]
        state, invalid = ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_REQUEST
        fenced, unmapped = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert [response.error_code for response in wrong] == [
            state,
            state,
            state,
            state,
            fenced,
            unmapped,
            invalid,
        ]
        assert all(response.error_message and response.commit_index == -1 for response in wrong)
        known = here.broker.quorum.state()
        assert (known.phase, known.app_version) == (Phase.ONGOING, -1)
        assert next_of(await commit(client, owner, [writer], number=opened.number))
        client.close()


async def test_a_replayed_job_commits_once(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        client = await here.client()
        owner = await begun(client)
        await begin(client, owner)
        await here.broker.produce(owner, 0, adds="x")
        assert not (await commit(client, owner, version=7)).was_committed
        found = await client.request(
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        )
        assert found.app_version == 7
        owner = (found.producer_id, found.producer_epoch)
        await begin(client, owner)
        await here.broker.produce(owner, 0, adds="x")
        again = await commit(client, owner, version=7)
        assert again.was_committed
        assert next_of(again) == (owner[0], owner[1] + 1)
        assert here.broker.quorum.state().phase is Phase.COMPLETE_ABORT
        assert await commit(client, owner, version=7) == again, "its answer was lost"
        client.close()


async def test_an_abort_ends_it_for_all(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        client = await here.client()
        owner = await begun(client)
        writer = await joined(client, (await begin(client, owner)).token)
        await here.broker.produce(writer, 0, adds="x")
        assert next_of(await commit(client, owner, [writer], committed=False))
        log = here.broker.partition().log
        assert [transaction.producer_id for transaction in log.transactions.aborted(0, 2)] == [writer[0]]
        client.close()


async def test_what_takes_too_long_is_over_for_its_writers_too(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        client, broker = await here.client(), here.broker
        owner = await begun(client)
        opened = await begin(client, owner)
        writer = await joined(client, opened.token)
        await broker.produce(writer, 0, adds="x")
        due = OpenTransaction(transactional_id="x", number=opened.number)
        await broker.submit(ExpireTransactions(transactions=[due]))
        assert (await join(client, opened.token)).error_code == ErrorCode.INVALID_TXN_STATE
        assert (await commit(client, owner, [writer])).error_code == ErrorCode.TRANSACTION_ABORTABLE
        assert broker.partition().log.transactions.last_stable_offset(2) == 2
        assert next_of(await commit(client, owner, [writer], committed=False)) == (owner[0], owner[1] + 1)
        client.close()


async def test_the_producer_id_of_a_writer_serves_again_under_the_next_epoch(tmp_path: Path) -> None:
    async with served(tmp_path) as here:
        client, broker = await here.client(), here.broker
        owner = await begun(client)
        writer = await joined(client, (await begin(client, owner)).token)
        await broker.produce(writer, 0, adds="x")
        owner = next_of(await commit(client, owner, [writer]))
        again = await joined(client, (await begin(client, owner)).token)
        assert again == (writer[0], writer[1] + 1)
        await broker.produce(again, 0, adds="x")
        assert next_of(await commit(client, owner, [again]))
        client.close()


async def test_a_commit_that_was_delayed_ends_no_other_transaction(tmp_path: Path) -> None:
    """This holds on every connection, since each transaction has a separate epoch."""
    async with served(tmp_path) as here:
        old = await here.client()
        former = await begun(old)
        await begin(old, former)
        client = await here.client()
        owner = next_of(await commit(client, former))
        await begin(client, owner)
        assert (await commit(old, former)).error_code == ErrorCode.PRODUCER_FENCED
        assert here.broker.quorum.state().phase is Phase.ONGOING
        old.close()
        client.close()
