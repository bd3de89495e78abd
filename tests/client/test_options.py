"""Unknown client options, and options of the wrong kind, are named at once, with the probably intended name."""

from __future__ import annotations

import inspect
import pydoc
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from typing import Any, get_type_hints

import pytest

import ottla
from ottla import sync
from ottla.client.admin import Admin
from ottla.client.admin.options import ADMIN_OPTIONS, AdminOptions
from ottla.client.consumer import Consumer
from ottla.client.consuming.options import CONSUMER_GROUPS, ConsumerOptions
from ottla.client.declared_options import declared_options
from ottla.client.options import checks_options, group_of
from ottla.client.producer import Producer
from ottla.client.producing.options import (
    PRODUCER_OPTIONS,
    WRITER_GROUPS,
    BufferOptions,
    ProducerOptions,
    WriterOptions,
)
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


def test_threads_may_make_their_first_client_at_once() -> None:
    class Made:
        def __init__(self, **options: Any) -> None:
            self.options = options

    def first_client(make: Any, together: threading.Barrier) -> None:
        together.wait(10)
        make(linger_ms=5, large_message_max_size=1)

    usual_s = sys.getswitchinterval()
    with ThreadPoolExecutor(8) as threads:
        try:
            sys.setswitchinterval(1e-6)
            for _ in range(10):
                unread = [type(group.__name__, (group,), {}) for group in WRITER_GROUPS]  # no hint is cached
                make = checks_options(*declared_options(*unread))(type("Made", (Made,), {}))
                together = threading.Barrier(8)
                for made in [threads.submit(first_client, make, together) for _ in range(8)]:
                    made.result(10)
        finally:
            sys.setswitchinterval(usual_s)


def test_a_writer_takes_what_a_producer_takes_but_for_transactions() -> None:
    TransactionWriter("token", linger_ms=1, compression_type=None)
    with pytest.raises(TypeError, match="TransactionWriter has no option 'transactional_id'"):
        TransactionWriter("token", transactional_id="x")  # type: ignore[call-arg]


def test_signatures_name_every_option_with_its_default() -> None:
    consumer = inspect.signature(Consumer).parameters
    assert consumer["topics"].kind is inspect.Parameter.VAR_POSITIONAL
    assert consumer["auto_offset_reset"].default == "latest"
    producer = inspect.signature(Producer).parameters
    assert producer["transactional_id"].default is None
    assert producer["batch_size"].default == 256 * 1024
    assert not any(
        parameter.kind is parameter.VAR_KEYWORD for parameter in (*consumer.values(), *producer.values())
    )
    assert producer["client_id"].default != consumer["client_id"].default


@pytest.mark.parametrize(
    ("known", "groups"), [(WriterOptions, WRITER_GROUPS), (ConsumerOptions, CONSUMER_GROUPS)]
)
def test_type_checkers_know_what_the_groups_have(known: type, groups: tuple[type, ...]) -> None:
    hints: dict[str, Any] = {}
    for group in groups:
        assert not hints.keys() & get_type_hints(group).keys(), "an option has one group"
        hints |= get_type_hints(group)
    assert get_type_hints(known) == hints


def test_type_checkers_know_the_options_of_producers_and_admins() -> None:
    assert get_type_hints(ProducerOptions) == {option.name: option.type for option in PRODUCER_OPTIONS}
    assert get_type_hints(AdminOptions) == {option.name: option.type for option in ADMIN_OPTIONS}


@pytest.mark.parametrize(
    "client",
    [
        *(
            ottla.Producer,
            ottla.Consumer,
            ottla.Admin,
            ottla.ExactlyOnce,
            ottla.TransactionWriter,
            ottla.Worker,
        ),
        *(sync.Producer, sync.Consumer, sync.Admin, sync.ExactlyOnce, sync.TransactionWriter, sync.Worker),
    ],
    ids=lambda client: f"{client.__module__}.{client.__name__}",
)
def test_help_lists_every_option_once_with_its_meaning(client: type) -> None:
    text = pydoc.plain(pydoc.render_doc(client))
    options = [
        parameter
        for parameter in inspect.signature(client).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    assert len(options) > 20
    for option in options:
        assert len(re.findall(rf"- `{option.name}` \(\S.*: [A-Z]", " ".join(text.split()))) == 1, option.name
        assert len(re.findall(rf"\b{option.name}:", text)) == (option.default is option.empty) * 2
    assert "docs/" not in text.partition("Method resolution order")[0]


def test_help_has_types_defaults_and_units() -> None:
    text = " ".join((ottla.Consumer.__doc__ or "").split())
    assert '- `auto_offset_reset` ("earliest", "latest" or "none", default "latest"): Place' in text
    assert "- `fetch_max_wait_ms` (int, default 500 ms): Time" in text
    assert "- `ssl_cafile` (str, path or None, default None): File" in text


def test_groups_cannot_be_changed() -> None:
    options = group_of(BufferOptions, {"buffer_memory": 5, "linger_ms": 7})
    assert options == BufferOptions(buffer_memory=5)
    with pytest.raises(FrozenInstanceError):
        options.buffer_memory = 6  # type: ignore[misc]
