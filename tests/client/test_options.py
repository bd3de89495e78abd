"""Options of clients that are unknown or of the wrong kind are named at once, with what was meant perhaps."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from ottla.client.admin import Admin
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.client.transactions.writer import TransactionWriter


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (Producer, {"linger": 5}, "Producer has no option 'linger'; the nearest is 'linger_ms'"),
        (Producer, {"compression": "lz4"}, "the nearest is 'compression_type'"),
        (Producer, {"bootstrap.servers": "h:1"}, "the nearest is 'bootstrap_servers'"),
        (Producer, {"transactional.id": "x"}, "the nearest is 'transactional_id'"),
        (Producer, {"qqq": 1}, r"Producer has no option 'qqq'; there are acks, audit_bucket_ms, .*"),
        (Consumer, {"group": "g"}, "Consumer has no option 'group'; the nearest is 'group_id'"),
        (Consumer, {"auto_offset": "latest"}, "the nearest is 'auto_offset_reset'"),
        (Admin, {"bootstrap": "h:1"}, "Admin has no option 'bootstrap'; the nearest is 'bootstrap_servers'"),
        (Producer, {"linger_ms": "5"}, "linger_ms is a number, not '5'"),
        (Producer, {"batch_size": 1.5}, "batch_size is a whole number, not 1.5"),
        (Producer, {"batch_size": True}, "batch_size is a whole number, not True"),
        (Producer, {"transactional_id": 7}, "transactional_id is a str or None, not 7"),
        (
            Producer,
            {"bootstrap_servers": 9092},
            "bootstrap_servers is 'host:port,host:port' or a list .* 9092",
        ),
        (Consumer, {"enable_auto_commit": "true"}, "enable_auto_commit is True or False, not 'true'"),
        (Admin, {"request_timeout_ms": "1"}, "request_timeout_ms is a whole number, not '1'"),
    ],
)
def test_a_wrong_option_is_named(make: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make(**options)


def test_a_writer_takes_what_a_producer_takes_but_for_transactions() -> None:
    TransactionWriter("token", linger_ms=1, compression_type=None)
    with pytest.raises(TypeError, match="TransactionWriter has no option 'transactional_id'"):
        TransactionWriter("token", transactional_id="x")  # type: ignore[call-arg]


def test_signatures_stay_what_they_are() -> None:
    assert "auto_offset_reset" in inspect.signature(Consumer).parameters
    assert "transactional_id" in inspect.signature(Producer).parameters
