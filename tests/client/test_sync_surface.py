"""`ottla.sync` offers the same calls as `ottla`, so the two cannot drift apart."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ottla
import ottla.client.sync
import ottla.sync

PAIRS = [
    (getattr(ottla, name), getattr(ottla.sync, name))
    for name in (
        "Producer",
        "Consumer",
        "Admin",
        "TransactionWriter",
        "ExactlyOnce",
        "Worker",
        "ShareConsumer",
        "ShareTask",
        "Backup",
        "Transaction",
        "ConsumedBatch",
    )
]
IN_PLACE_OF = {
    "asyncio.Future[None]": "None",
    "RecordDelivery": "Future[RecordMetadata]",
    "ColumnsDelivery": "ColumnsSent",
    "Acknowledgement": "Future[None]",
    "asyncio.Future": "Future",
    "AsyncIterator": "Iterator",
    "AsyncGenerator[CommittedTransaction, None]": "Generator[CommittedTransaction, None, None]",
}
"""Result types of blocking calls, by the types that only an event loop can use."""
MADE_WITH_THE_OBJECT = {
    ottla.Transaction: {"app_version", "result"},
    ottla.ConsumedBatch: {"committed", "records"},
}
"""Attributes there, properties here."""


def public(kind: type) -> dict[str, Any]:
    """Return methods and properties by their public names; `__aenter__` and the like become `__enter__`."""
    found = {
        name: getattr(kind, name)
        for name in dir(kind)
        if not name.startswith("_") and not isinstance(getattr(kind, name), type(ottla))
    }
    # The plain names go first: clients for asyncio have them too, as refusals.
    special = (
        "__enter__",
        "__exit__",
        "__iter__",
        "__next__",
        "__aenter__",
        "__aexit__",
        "__aiter__",
        "__anext__",
    )
    return found | {name.replace("__a", "__"): getattr(kind, name) for name in special if hasattr(kind, name)}


def parameters(call: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(call).parameters.values())


def returned(call: Callable[..., Any]) -> str:
    text = str(inspect.signature(call).return_annotation)
    for waiting, blocking in IN_PLACE_OF.items():
        text = text.replace(waiting, blocking)
    return text


@pytest.mark.parametrize(("waiting", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_call_is_there_with_the_same_parameters(waiting: type, blocking: type) -> None:
    theirs, ours = public(waiting), public(blocking)
    attributes = MADE_WITH_THE_OBJECT.get(waiting, set())
    assert theirs.keys() | attributes == ours.keys()
    for name in theirs.keys() - {"__exit__"}:
        if not callable(theirs[name]):  # a property, or the field of a record
            assert type(ours[name]) is type(theirs[name]), name
            continue
        expected, found = parameters(theirs[name]), parameters(ours[name])
        if len(found) > len(expected):
            added = found.pop()
            assert (added.name, added.kind, added.default) == ("timeout_ms", added.KEYWORD_ONLY, None), name
            assert added.annotation == "float | None", name
        assert [str(parameter) for parameter in found] == [str(parameter) for parameter in expected], name
        if returned(theirs[name]) not in (waiting.__name__, "Self"):
            assert returned(ours[name]) == returned(theirs[name]), name


@pytest.mark.parametrize(("waiting", "blocking"), PAIRS[:7], ids=lambda kind: kind.__name__)
def test_clients_take_the_same_options(waiting: type, blocking: type) -> None:
    assert parameters(blocking) == parameters(waiting)


def test_facades_use_no_private_names_of_the_clients_behind_them() -> None:
    for module in Path(inspect.getfile(ottla.client.sync)).parent.glob("*.py"):
        assert not re.search(r"client\._\w|_inner\._[a-z]|steps\._|reading\._", module.read_text()), (
            module.name
        )


def test_no_call_is_a_coroutine() -> None:
    for _, blocking in PAIRS:
        for name, call in public(blocking).items():
            assert not inspect.iscoroutinefunction(call), name
            assert name.startswith("_") or inspect.getdoc(call), name
