"""Certificates that expire, are renewed, or are renewed wrongly while clients and brokers use them.

Established connections go on. New connections need a currently valid certificate. No acknowledged record is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from ottla import Admin, TlsFailed
from ottla.testing.nodes import Node
from tests.certificates import Authority
from tests.cluster import wait_until
from tests.faults.secured import HOST, LISTENER, UNIT, Access, Loads, SecuredCluster, replace_file

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.xdist_group("secured-faults")]

EXPIRES_S = 20.0
KEPT = f"listener {LISTENER} goes on with its old keys and certificates"
RELOADED = f"listener {LISTENER} has new keys and certificates"
RENEWED_S = 20.0
"""Time of two checks of the files, half a second apart, on a busy machine."""


def refusal(secured: SecuredCluster, broker_id: int, access: Access) -> str:
    """Return the reason why a new client cannot use this broker; empty if it can."""

    async def connect() -> None:
        async with Admin(bootstrap_servers=f"{HOST}:{secured.ports[broker_id]}", **access.options):
            pass

    try:
        asyncio.run(connect())
    except TlsFailed as error:
        return str(error)
    return ""


def is_refused_as_expired(secured: SecuredCluster, broker_id: int, access: Access) -> bool:
    return "expired" in refusal(secured, broker_id, access)


def says_more_often(node: Node, text: str, than: int) -> bool:
    """Return whether a node's log contains the text more than `than` times."""
    return node.log().count(text) > than


def wait_let_in(secured: SecuredCluster, access: Access) -> None:
    """Return once new clients can connect to every broker."""
    wait_until(
        lambda: not any(refusal(secured, broker_id, access) for broker_id in secured.ports),
        "certificates that clients believe",
        RENEWED_S,
    )


def test_certificates_expire_under_load(secured: SecuredCluster) -> None:
    """Established connections between brokers go on, too. New certificates let all clients in again."""
    with Loads(secured, "expired") as loads:
        for broker_id in secured.ports:
            issued = secured.issue(broker_id, days=EXPIRES_S / 86_400)
            replace_file(secured.key_file(broker_id), issued.both.read_bytes())
        for broker_id in secured.ports:
            wait_until(
                partial(is_refused_as_expired, secured, broker_id, loads.access),
                "a refusal of what has expired",
                EXPIRES_S + RENEWED_S,
            )
        loads.go_on()
        for broker_id in secured.ports:
            replace_file(secured.key_file(broker_id), secured.issue(broker_id).both.read_bytes())
        wait_let_in(secured, loads.access)
        loads.restart_hard(secured.cluster.broker(1))


def test_an_authority_is_replaced_under_load(secured: SecuredCluster, tmp_path: Path) -> None:
    """The three steps of docs/OPERATIONS.md succeed although a broker dies in each.

    Clients trust both authorities from the start.
    """
    new, old = Authority(tmp_path / "new"), secured.authority
    of_both = old.file.read_bytes() + new.file.read_bytes()
    only_old, both = tmp_path / "old.pem", tmp_path / "both.pem"
    only_old.write_bytes(old.file.read_bytes())
    both.write_bytes(of_both)
    with Loads(secured, "reissued", both) as loads:
        with reloaded(secured):
            replace_file(secured.trusted, of_both)
        loads.restart_hard(secured.cluster.broker(1))
        for broker_id in secured.ports:
            replace_file(secured.key_file(broker_id), secured.issue(broker_id, new).both.read_bytes())
        only_new = secured.access(loads.access.user, loads.access.password, new.file)
        wait_let_in(secured, only_new)
        loads.restart_hard(secured.cluster.broker(2))
        with reloaded(secured):
            replace_file(secured.trusted, new.file.read_bytes())
        loads.restart_hard(secured.cluster.broker(3))
        of_past = secured.access(loads.access.user, loads.access.password, only_old)
        assert "not signed by anyone whom the client trusts" in refusal(secured, 1, of_past)
    secured.authority = new


def test_bad_certificates_change_nothing(secured: SecuredCluster, tmp_path: Path) -> None:
    """Each bad certificate leaves the old one in force, is counted, and is named in the log."""
    stranger = Authority(tmp_path / "stranger")
    node = secured.cluster.broker(2)
    issued = secured.issue(2)
    other = stranger.issue("broker-2", HOST, common_name="broker-2", unit=UNIT)
    bad = {
        "no PEM": b"\x00\x01 not a certificate",
        "key": other.key.read_bytes() + issued.certificate.read_bytes(),
        "subject": secured.authority.issue("x", HOST, common_name="somebody-else").both.read_bytes(),
        "names": secured.authority.issue(
            "y", "elsewhere.test", common_name="broker-2", unit=UNIT
        ).both.read_bytes(),
        "expired": secured.authority.issue(
            "z", HOST, common_name="broker-2", unit=UNIT, days=-1, begins_days_ago=3
        ).both.read_bytes(),
        "authority": other.both.read_bytes(),
        "half": issued.both.read_bytes()[:300],
    }
    with Loads(secured, "bad-certificates") as loads:
        good = secured.key_file(2).read_bytes()
        for what, content in bad.items():
            refused = node.log().count(KEPT)
            replace_file(secured.key_file(2), content)
            wait_until(partial(says_more_often, node, KEPT, refused), f"a refusal of {what}", RENEWED_S)
            assert refusal(secured, 2, loads.access) == "", what
            loads.go_on()
        assert secured.metric(node, "ottla_tls_reload_failures") >= len(bad)
        replace_file(secured.key_file(2), good)
        loads.restart_hard(secured.cluster.broker(2))


@contextmanager
def reloaded(secured: SecuredCluster) -> Iterator[None]:
    """Return from the block once every broker has loaded the block's changes."""

    def count() -> dict[int, int]:
        return {node.id: node.log().count(RELOADED) for node in secured.cluster.brokers}

    before = count()
    yield
    wait_until(
        lambda: all(now > before[broker_id] for broker_id, now in count().items()), "a reload", RENEWED_S
    )
