"""`ottla txn`: lists, describes and aborts transactions, finds hanging ones, and deletes transactional ids."""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..arguments.options import (
    Actions,
    CommandParser,
    add_common,
    add_connection,
    add_regex,
    add_yes,
    carry_out,
    command_parser,
)
from ..connection.precedence import connection_of
from ..failures import CommandFailed
from ..terminal.output import none_of, print_fields, print_json, print_table, separate
from ..terminal.shades import state
from ..terminal.text import counted, note, say

if TYPE_CHECKING:
    from ...client.admin import Admin, TransactionDescription, TransactionListing
    from ...client.admin.transactions import Described
    from ...protocol.errors import KafkaError

    Failures = dict[str, KafkaError]
    Listed = tuple[list[TransactionListing], Failures]

PATIENCE_MS = 5_000
"""Milliseconds for which a broker that cannot list its ids yet is asked again."""
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def parser(name: str) -> CommandParser:
    """Return the parser of `ottla txn`."""
    options = command_parser(
        f"ottla {name}",
        "List, describe and abort transactions, delete transactional ids, and find transactions that hang.",
        "  ottla txn list --state Ongoing\n"
        "  ottla txn describe copy-orders\n"
        "  ottla txn abort copy-orders\n"
        "  ottla txn delete copy-orders\n"
        "  ottla txn find-hanging\n"
        "  ottla txn abort-hanging orders:0 --producer-id 4711 --secret-file /etc/ottla/cluster.secret",
    )
    add_connection(options)
    actions = Actions(options, __package__ or "")
    _show(actions)
    _abort(actions)
    _delete(actions)
    _find_hanging(actions)
    _abort_hanging(actions)
    return options


run = carry_out


def _show(actions: Actions) -> None:
    listing = actions.add(
        "list",
        "txn:list_transactions",
        "List transactional ids.",
        "  ottla txn list\n"
        "  ottla txn list --state Ongoing --open-longer-than 5m\n"
        "  ottla txn list -r 'copy-.*' -o json\n"
        "  ottla txn list --producer-id 4711",
    )
    listing.add_argument("names", nargs="*", metavar="ID", help="default: all")
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        choices=STATES,
        metavar="STATE",
        help=f"only ids in this state: {', '.join(STATES)}",
    )
    listing.add_argument(
        "--producer-id",
        action="append",
        default=[],
        type=int,
        metavar="N",
        help="only ids with this producer id",
    )
    listing.add_argument(
        "--open-longer-than",
        metavar="AGE",
        help="only ids whose newest transaction began longer ago, such as 90s or 5m",
    )
    add_regex(listing, "transactional ids")
    add_common(listing)

    describe = actions.add(
        "describe",
        "txn:describe",
        "Describe transactional ids: state, producer, age, partitions without a marker.",
        "  ottla txn describe copy-orders\n  ottla txn describe -r 'copy-.*' --summary -o json",
    )
    describe.add_argument("names", nargs="*", metavar="ID", help="default: all")
    describe.add_argument("-s", "--summary", action="store_true", help="a line for each, without partitions")
    add_regex(describe, "transactional ids")
    add_common(describe)


def _abort(actions: Actions) -> None:
    abort = actions.add(
        "abort",
        "txn:abort",
        "Abort open transactions. Their producers are fenced: they fail, and must start again.",
        "  ottla txn abort copy-orders\n  ottla txn abort -r 'copy-.*' --yes",
    )
    abort.add_argument("names", nargs="+", metavar="ID")
    add_regex(abort, "transactional ids")
    add_yes(abort)
    add_common(abort)


def _delete(actions: Actions) -> None:
    delete = actions.add(
        "delete",
        "txn:delete",
        "Delete transactional ids with their application versions. Stop their producers first.",
        "  ottla txn delete copy-orders\n  ottla txn delete -r 'copy-.*' --yes",
    )
    delete.add_argument("names", nargs="+", metavar="ID")
    add_regex(delete, "transactional ids")
    add_yes(delete)
    add_common(delete)


def _find_hanging(actions: Actions) -> None:
    find = actions.add(
        "find-hanging",
        "hanging_transactions:find_hanging",
        "Find transactions that are open in a partition, though no transactional id has them open.",
        "  ottla txn find-hanging\n"
        "  ottla txn find-hanging --topic orders:0,1 --max-timeout 30m\n"
        "  ottla txn find-hanging --broker 2 -o json",
    )
    find.add_argument(
        "-t",
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:PARTITION,...]",
        help="only these topics or partitions (default: all)",
    )
    find.add_argument(
        "--broker", type=int, metavar="ID", help="only partitions with a replica on this broker"
    )
    find.add_argument(
        "--max-timeout",
        default="15m",
        metavar="AGE",
        help="the longest time that producers may leave a transaction open (15m)",
    )
    add_common(find)


def _abort_hanging(actions: Actions) -> None:
    abort = actions.add(
        "abort-hanging",
        "hanging_transactions:abort_hanging",
        "End a producer's open transaction in one partition. Requires the cluster secret.",
        "  ottla txn abort-hanging orders:0 --producer-id 4711 --secret-file /etc/ottla/cluster.secret",
    )
    abort.add_argument("partition", metavar="TOPIC:PARTITION")
    abort.add_argument("--producer-id", type=int, required=True, metavar="N", help="as find-hanging shows it")
    abort.add_argument(
        "--secret-file",
        required=True,
        metavar="FILE",
        help="cluster.secret.file of the nodes; DIR/cluster.secret of `ottla up --data DIR`",
    )
    add_yes(abort)
    add_common(abort)


# ------------------------------------------------------------ actions


def list_transactions(arguments: argparse.Namespace) -> None:
    """Print transactional ids with their states.

    Raises CommandFailed with the errors of brokers that returned no list.
    """
    from ..run_client import raise_refusals, run_client

    listed, failures = run_client(_list(arguments))
    if failures and not listed:
        raise_refusals(failures)
    if arguments.output == "json":
        print_json(
            [
                {
                    "transactional_id": transaction.transactional_id,
                    "state": transaction.state,
                    "producer_id": transaction.producer_id,
                    "coordinator": transaction.coordinator,
                }
                for transaction in listed
            ]
        )
    else:
        rows = [
            (
                transaction.transactional_id,
                transaction.state,
                transaction.producer_id,
                transaction.coordinator,
            )
            for transaction in listed
        ]
        narrowed = arguments.names or arguments.state or arguments.producer_id or arguments.open_longer_than
        print_table(
            ("TRANSACTIONAL-ID", "STATE", "PRODUCER-ID", "COORDINATOR"),
            rows,
            spare=("COORDINATOR",),
            empty="" if failures else none_of("transactional ids", asked=bool(narrowed)),
            wide=arguments.output == "wide",
        )
    raise_refusals(failures)


def describe(arguments: argparse.Namespace) -> None:
    """Print the newest transaction of each named transactional id."""
    from ..run_client import raise_refusals, run_client

    described, unlisted = run_client(_describe(arguments))
    found, failures = _split(described)
    failures |= unlisted
    if failures and not found:
        raise_refusals(failures)
    if arguments.output == "json":
        print_json([_as_json(transaction, summary=arguments.summary) for transaction in found])
    elif arguments.summary:
        print_table(
            [label for label, _ in _LABELS],
            [_summary(transaction) for transaction in found],
            spare=("COORDINATOR", "TIMEOUT-MS", "APP-VERSION", "PRODUCER-EPOCH", "STARTED", "PARTITIONS"),
            empty="" if failures else none_of("transactional ids"),
            wide=arguments.output == "wide",
        )
    else:
        if not found and not failures:
            note(none_of("transactional ids"))
        for number, transaction in enumerate(found):
            if number:
                say()
            _print(transaction)
    raise_refusals(failures)


def abort(arguments: argparse.Namespace) -> None:
    """Abort the open transactions of transactional ids after a confirmation, and print each result."""
    from ..run_client import raise_refusals, run_client
    from ..terminal.confirmation import confirm

    answers, unlisted = run_client(_describe(arguments))
    raise_refusals(unlisted)  # Either all matching transactions are aborted or none is.
    described, failures = _split(answers)
    opened = [transaction for transaction in described if transaction.state == "Ongoing"]
    if opened:
        listed = ", ".join(
            f"{transaction.transactional_id} (open for {age(transaction)})" for transaction in opened
        )
        confirm(f"Abort {listed} and fence the producer?", yes=arguments.yes)
        failures |= run_client(_abort_all(arguments, opened))
    results = [
        (
            transaction.transactional_id,
            "aborted" if transaction.state == "Ongoing" else f"not open: {transaction.state}",
        )
        for transaction in described
        if transaction.transactional_id not in failures
    ]
    if failures and not results:
        raise_refusals(failures)
    if arguments.output == "json":
        print_json([{"transactional_id": name, "result": result} for name, result in results])
    else:
        print_table(("TRANSACTIONAL-ID", "RESULT"), results)
    raise_refusals(failures)


def delete(arguments: argparse.Namespace) -> None:
    """Delete transactional ids after a confirmation, and print each result."""
    from ..run_client import raise_refusals, refusal, run_client
    from ..terminal.confirmation import confirm, is_asked

    names, unlisted = run_client(_named(arguments))
    raise_refusals(unlisted)
    if is_asked(yes=arguments.yes):
        _, absent = _split(run_client(_describe(arguments))[0])
        raise_refusals(absent)
    what = counted(len(names), "transactional id")
    listed = ", ".join(names)
    confirm(f"Delete {what}, and forget the application versions committed: {listed}?", yes=arguments.yes)
    failures = run_client(_delete_all(arguments, names))
    if len(failures) < len(names):
        results = [(name, "failed" if name in failures else "deleted") for name in names]
        if arguments.output == "json":
            print_json([{"transactional_id": name, "result": result} for name, result in results])
        else:
            print_table(("TRANSACTIONAL-ID", "RESULT"), [(name, state(result)) for name, result in results])
    if failures:
        raise CommandFailed("; ".join(refusal(error) for error in failures.values()))


_LABELS = (
    ("TRANSACTIONAL-ID", "transactional_id"),
    ("STATE", "state"),
    ("PRODUCER-ID", "producer_id"),
    ("PRODUCER-EPOCH", "producer_epoch"),
    ("STARTED", "started"),
    ("OPEN-FOR", "open_for"),
    ("TIMEOUT-MS", "timeout_ms"),
    ("APP-VERSION", "app_version"),
    ("PARTITIONS", "partitions"),
    ("COORDINATOR", "coordinator"),
)


def _summary(transaction: TransactionDescription) -> list[object]:
    from ..arguments.selection import iso_time

    values: dict[str, object] = {
        "started": iso_time(transaction.started_ms) or "-",
        "open_for": age(transaction),
        "app_version": "-" if transaction.app_version < 0 else transaction.app_version,
        "partitions": len(transaction.partitions),
    }
    return [values[field] if field in values else getattr(transaction, field) for _, field in _LABELS]


def _print(transaction: TransactionDescription) -> None:
    labels = [label for label, _ in _LABELS]
    print_fields(list(zip(labels, _summary(transaction), strict=True)))
    if transaction.partitions:
        separate()
        print_table(("TOPIC", "PARTITION"), transaction.partitions)


def _as_json(transaction: TransactionDescription, *, summary: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.timeout_ms,
        "started_ms": None if transaction.started_ms < 0 else transaction.started_ms,
        "app_version": None if transaction.app_version < 0 else transaction.app_version,
        "coordinator": transaction.coordinator,
        "partition_count": len(transaction.partitions),
    }
    if not summary:
        fields["partitions"] = [list(partition) for partition in transaction.partitions]
    return fields


def age(transaction: TransactionDescription, now_ms: float | None = None) -> str:
    """Return how long an unfinished transaction has been open, as text such as `5m12s`; `-` for an ended
    transaction."""
    if transaction.started_ms < 0 or transaction.state not in ("Ongoing", "PrepareCommit", "PrepareAbort"):
        return "-"
    from ..arguments.selection import duration_text

    now_ms = time.time() * 1000 if now_ms is None else now_ms
    return duration_text((now_ms - transaction.started_ms) / 1000)


# ------------------------------------------------------------ requests


async def _list(arguments: argparse.Namespace) -> Listed:
    from ...client.admin import Admin
    from ..arguments.selection import milliseconds_of

    longer = arguments.open_longer_than
    longer_ms = None if longer is None else milliseconds_of(longer, "--open-longer-than")
    pattern = _pattern(arguments)
    async with Admin(**connection_of(arguments)) as admin:
        found, failures = _joined(
            await admin.list_transactions_by_broker(
                states=arguments.state,
                producer_ids=arguments.producer_id,
                open_longer_than_ms=longer_ms,
                pattern=pattern,
                patience_ms=PATIENCE_MS,
            )
        )
    wanted = set() if arguments.regex else set(arguments.names)
    return [
        transaction for transaction in found if not wanted or transaction.transactional_id in wanted
    ], failures


def _joined(answers: Mapping[int, list[TransactionListing] | KafkaError]) -> Listed:
    """Merge the transactional ids that brokers listed, and return them with the errors of the other brokers."""
    from ...client.admin.by_broker import split

    listed, failures = split(answers)
    found = {(transaction.transactional_id, transaction.producer_id): transaction for transaction in listed}
    return [found[key] for key in sorted(found)], {
        f"broker {broker}": why for broker, why in failures.items()
    }


def _pattern(arguments: argparse.Namespace) -> str | None:
    """Return one regular expression that matches any of the patterns in the arguments, for the brokers to apply.

    None without `--regex`. Raises UsageError.
    """
    from ..arguments.selection import pattern

    if not arguments.regex:
        return None
    return "|".join(f"(?:{pattern(name).pattern})" for name in arguments.names)


async def _describe(arguments: argparse.Namespace) -> tuple[Described, Failures]:
    """Return the descriptions of the named transactional ids, or of all ids, and the errors of brokers that returned no
    list."""
    from ...client.admin import Admin
    from ...protocol.errors import KafkaError

    names, failures = await _named(arguments)
    async with Admin(**connection_of(arguments)) as admin:
        described = await admin.describe_transactions(names)
        refused = {name: why for name, why in described.items() if isinstance(why, KafkaError)}
        return described | await _with_nearest_names(admin, refused), failures


async def _named(arguments: argparse.Namespace) -> tuple[list[str], Failures]:
    """Return the named transactional ids, or all ids, and the errors of brokers that returned no list.

    Patterns match existing ids. Raises CommandFailed if nothing matches.
    """
    from ...client.admin import Admin

    pattern = _pattern(arguments)
    if arguments.names and not pattern:
        return list(dict.fromkeys(arguments.names)), {}
    async with Admin(**connection_of(arguments)) as admin:
        listed, failures = _joined(
            await admin.list_transactions_by_broker(pattern=pattern, patience_ms=PATIENCE_MS)
        )
    if pattern and not listed and not failures:
        raise CommandFailed(f"no transactional id matches {' or '.join(arguments.names)}")
    return [transaction.transactional_id for transaction in listed], failures


def _split(described: Described) -> tuple[list[TransactionDescription], dict[str, KafkaError]]:
    """Separate the descriptions of transactional ids from the errors."""
    from ...protocol.errors import KafkaError

    found = [answer for answer in described.values() if not isinstance(answer, KafkaError)]
    return found, {name: answer for name, answer in described.items() if isinstance(answer, KafkaError)}


async def _abort_all(
    arguments: argparse.Namespace, opened: list[TransactionDescription]
) -> dict[str, KafkaError]:
    """Abort these open transactions, but no newer ones of the same transactional ids; return the errors by id."""
    from ...client.admin import Admin
    from ...protocol.errors import ErrorCode, KafkaError

    asked = {transaction.transactional_id: transaction for transaction in opened}
    async with Admin(**connection_of(arguments)) as admin:
        found, failures = _split(await admin.describe_transactions(asked))
        same = [
            transaction
            for transaction in found
            if transaction.identity == asked[transaction.transactional_id].identity
        ]
        for name in asked.keys() - failures.keys() - {transaction.transactional_id for transaction in same}:
            why = f"the transaction of {name!r} has ended, and another one is open: it was not aborted"
            failures[name] = KafkaError(ErrorCode.INVALID_TXN_STATE, why)
        return failures | await _refused(
            admin.abort_transaction, [transaction.transactional_id for transaction in same]
        )


async def _delete_all(arguments: argparse.Namespace, names: list[str]) -> dict[str, KafkaError]:
    """Delete these transactional ids; return the errors by id."""
    from ...client.admin import Admin

    async with Admin(**connection_of(arguments)) as admin:
        return await _with_nearest_names(admin, await _refused(admin.delete_transactional_id, names))


async def _with_nearest_names(admin: Admin, refused: dict[str, KafkaError]) -> dict[str, KafkaError]:
    """Return the errors by id, where a missing id is named with the nearest existing one."""
    from ..missing_names import with_nearest_name

    return {name: await with_nearest_name(admin, [name], error) for name, error in refused.items()}


async def _refused(act: Callable[[str], Awaitable[None]], names: list[str]) -> dict[str, KafkaError]:
    """Call `act` for every transactional id, even if some fail; return the errors by id."""
    from ...protocol.errors import KafkaError

    failures: dict[str, KafkaError] = {}
    for name in names:
        try:
            await act(name)
        except KafkaError as error:
            failures[name] = error
    return failures
