"""Options of writers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..options import WrongOption, client_options, known_only, whole_number

TOPIC = "topic"
TRANSACTIONAL_ID = "transactionalId"
APP_VERSION = "appVersion"
TRANSACTION_TIMEOUT = "transactionTimeoutMs"
DELIVERY = "delivery"
KNOWN = (TOPIC, TRANSACTIONAL_ID, APP_VERSION, TRANSACTION_TIMEOUT, DELIVERY)
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
TIMEOUT_MS = 60_000
"""Time after a job's death until its transaction is aborted, if no driver continues it.

Writing tasks renew the transaction repeatedly, so a batch may take any time.
"""

_OF_WRITERS: Mapping[str, type] = {
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
    """Options of a sink; docs/SPARK.md explains each. The object is sent to executors."""

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
    given = known_only(options, KNOWN)
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
        client_options(options, _OF_WRITERS),
        given.get(TOPIC),
        given.get(TRANSACTIONAL_ID),
        None if version is None else whole_number(APP_VERSION, version),
        whole_number(TRANSACTION_TIMEOUT, given.get(TRANSACTION_TIMEOUT, str(TIMEOUT_MS)), least=1),
        delivery == EXACTLY_ONCE,
    )
