"""Options of writers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..options import OptionRow, Queries, WrongOption, client_options, known_only, whole_number

TOPIC = "topic"
TRANSACTIONAL_ID = "transactionalId"
APP_VERSION = "appVersion"
TRANSACTION_TIMEOUT = "transactionTimeoutMs"
DELIVERY = "delivery"
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
TIMEOUT_MS = 60_000
"""Time after a job's death until its transaction is aborted, if no driver continues it.

Writing tasks renew the transaction repeatedly, so a batch may take any time.
"""

OPTIONS = (
    OptionRow(TOPIC, "name of a topic", "", "Topic of all rows. Without it rows need a column `topic`."),
    OptionRow(
        TRANSACTIONAL_ID,
        "text",
        "spark",
        "Beginning of the transactional ids of a query; the id of the query follows. For `df.write` it is the whole "
        "id. If given, it belongs to one query alone: another query that has committed nothing yet is refused.",
    ),
    OptionRow(
        APP_VERSION,
        "whole number",
        "",
        "Version of the job under `transactionalId`: the job counts once, however often it runs.",
        queries=Queries.BATCH,
    ),
    OptionRow(
        TRANSACTION_TIMEOUT,
        "whole number",
        str(TIMEOUT_MS),
        "Time after which the cluster aborts a transaction of which no task was heard. Tasks are heard of all the "
        "time, so a batch may take longer.",
        unit="ms",
    ),
    OptionRow(
        DELIVERY,
        f"{EXACTLY_ONCE} or {AT_LEAST_ONCE}",
        EXACTLY_ONCE,
        "Delivery of rows. `at-least-once` uses no transactions: for clusters of Apache Kafka, whose transactions have "
        "one writer.",
    ),
)
CLIENT_OPTIONS: Mapping[str, type] = {
    "compression_type": str,
    "linger_ms": int,
    "batch_size": int,
    "max_request_size": int,
    "buffer_memory": int,
    "max_in_flight": int,
    "delivery_timeout_ms": int,
    "max_block_ms": int,
}


@dataclass(frozen=True)
class SinkOptions:
    """The options that a program has given to a sink. The object is sent to executors."""

    client: Mapping[str, Any]
    """Keyword arguments for any client of the sink."""
    topic: str | None
    transactional_id: str | None
    app_version: int | None
    transaction_timeout_ms: int
    exactly_once: bool


def of_stream(options: Mapping[str, str]) -> SinkOptions:
    """Return the options for `writeStream`. Raises WrongOption."""
    parsed = _parsed(options)
    if parsed.app_version is not None:
        raise WrongOption(
            f"option {APP_VERSION!r} is for df.write: a stream's batches have their numbers as versions"
        )
    return parsed


def of_batch(options: Mapping[str, str]) -> SinkOptions:
    """Return the options for `df.write`. Raises WrongOption."""
    parsed = _parsed(options)
    if parsed.app_version is not None and parsed.transactional_id is None:
        raise WrongOption(
            f"option {APP_VERSION!r} needs {TRANSACTIONAL_ID!r}: a version is remembered under a name"
        )
    return parsed


def unique_id() -> str:
    """Return a random transactional id, for a job without a name."""
    return f"spark-batch-{uuid.uuid4()}"


def _parsed(options: Mapping[str, str]) -> SinkOptions:
    given = known_only(options, OPTIONS)
    delivery = given.get(DELIVERY, EXACTLY_ONCE)
    if delivery not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise WrongOption(f"option {DELIVERY!r} is {EXACTLY_ONCE} or {AT_LEAST_ONCE}, not {delivery!r}")
    for name in (TOPIC, TRANSACTIONAL_ID):
        if name in given and not given[name]:
            raise WrongOption(f"option {name!r} is empty")
    version = given.get(APP_VERSION)
    if delivery == AT_LEAST_ONCE and (TRANSACTIONAL_ID in given or version is not None):
        raise WrongOption(f"option {DELIVERY!r} is {AT_LEAST_ONCE}: there is no transaction to be named")
    return SinkOptions(
        client_options(options, CLIENT_OPTIONS),
        given.get(TOPIC),
        given.get(TRANSACTIONAL_ID),
        None if version is None else whole_number(APP_VERSION, version),
        whole_number(TRANSACTION_TIMEOUT, given.get(TRANSACTION_TIMEOUT, str(TIMEOUT_MS)), least=1),
        delivery == EXACTLY_ONCE,
    )
