"""Users, passwords, rights and secrets that change under load.

Clients with a right go on. Clients that lost a right are refused within the bound of docs/SECURITY-GUIDE.md. No
acknowledged record is lost.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial

import pytest

from ottla import (
    Acl,
    AclFilter,
    Admin,
    AuthenticationFailed,
    AuthorizationFailed,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
    UserPassword,
)
from ottla.protocol.credentials.scram import DEFAULT_MECHANISM
from ottla.protocol.session.handshake import Role
from tests.cluster import wait_until
from tests.faults.own_load import OwnLoad
from tests.faults.secured import Access, Loads, SecuredCluster, may_do_all
from tests.integration.test_secret_rotation import gets_in

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900), pytest.mark.xdist_group("secured-faults")]

OUT_S = 10.0
"""Seconds within which a revoked right is refused: brokers follow the quorum's changes by then, or stop serving."""
WAIT_S = 30.0


def is_out(loads: Loads, load: OwnLoad, why: type[Exception], take_away: Callable[[], object]) -> None:
    """Fail unless the load is refused for that reason, and for good, once its right is revoked; other loads go on."""
    load.wait_acknowledged(50)
    take_away()
    ends_s = time.monotonic() + OUT_S
    wait_until(lambda: load.failed, "a refused send", WAIT_S)
    while time.monotonic() < ends_s:
        loads.go_on()
    acknowledged = len(load.acknowledged)
    loads.go_on()
    loads.go_on()
    assert len(load.acknowledged) == acknowledged
    assert {type(error) for _, error in load.failed} == {why}


@pytest.mark.parametrize("what", ["removed", "password"])
def test_a_user_loses_the_login(secured: SecuredCluster, what: str) -> None:
    topic = f"user-{what}"
    with Loads(secured, topic) as loads:
        access = secured.access(f"leaver-{what}", "the old password")
        secured.add_user(access, topic)
        leaver = loads.own("leaver", access)
        loads.leaving.append(leaver)
        renewed = Access(access.ca_file, access.user, "the new password")

        async def take_away(admin: Admin) -> None:
            if what == "removed":
                await admin.alter_scram_credentials(deletions=[(access.user, DEFAULT_MECHANISM)])
            else:
                await admin.alter_scram_credentials([UserPassword(renewed.user, renewed.password)])

        with leaver:
            is_out(loads, leaver, AuthenticationFailed, partial(secured.as_admin, take_away))
        if what == "password":
            back = loads.own("back", renewed)
            loads.leaving.append(back)
            with back:
                back.wait_acknowledged(50)
            assert back.failed == []


def test_a_right_to_write_is_taken_away(secured: SecuredCluster) -> None:
    topic = "right-to-write"
    with Loads(secured, topic) as loads:
        access = secured.access("writer", "a password")
        secured.add_user(access, topic)
        leaver = loads.own("leaver", access)
        loads.leaving.append(leaver)
        with leaver:
            is_out(
                loads,
                leaver,
                AuthorizationFailed,
                partial(secured.as_admin, partial(remove, may_do_all("writer", topic))),
            )


def test_a_right_to_read_is_taken_away_from_fetches_that_wait(secured: SecuredCluster) -> None:
    """Records written after the revocation reach only clients that still have the right."""
    topic, access = "right-to-read", secured.access("reader", "a password")
    stays = secured.access("stays", "a password")
    with Loads(secured, "beside-readers") as loads:
        secured.as_admin(lambda admin: admin.create_topics([NewTopic(topic, 1)]))
        for granted in (access, stays):
            secured.add_user(granted, topic)
        asyncio.run(readers(secured, topic, access, stays))
        loads.go_on()


async def readers(secured: SecuredCluster, topic: str, leaving: Access, staying: Access) -> None:
    async with (
        Producer(bootstrap_servers=secured.cluster.bootstrap) as producer,
        reader(secured, leaving) as leaver,
        reader(secured, staying) as stayer,
        Admin(bootstrap_servers=secured.cluster.bootstrap) as admin,
        asyncio.timeout(120),
    ):
        for consumer in (leaver, stayer):
            consumer.assign([TopicPartition(topic, 0)])
        for value in (b"first", b"second"):
            await producer.send_and_wait(topic, value)
            assert [await values(consumer) for consumer in (leaver, stayer)] == [[value], [value]]
        waits = [asyncio.create_task(values(consumer)) for consumer in (leaver, stayer)]
        await remove(may_do_all(leaving.user, topic), admin)
        await all_brokers_know(secured, len(await admin.describe_acls()))
        await producer.send_and_wait(topic, b"secret")
        assert await waits[1] == [b"secret"]
        with pytest.raises(AuthorizationFailed):
            await waits[0]


def reader(secured: SecuredCluster, access: Access) -> Consumer:
    """Return a consumer whose fetches wait for half a minute."""
    return Consumer(
        bootstrap_servers=secured.bootstrap,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=30_000,
        request_timeout_ms=40_000,
        **access.options,
    )


async def values(consumer: Consumer) -> list[bytes | None]:
    """Return the values of the next records."""
    while not (found := await consumer.getmany(timeout_ms=5_000)):
        pass
    return [record.value for records in found.values() for record in records]


async def remove(acls: list[Acl], admin: Admin) -> None:
    """Delete ACLs."""
    await admin.delete_acls([AclFilter(*acl) for acl in acls])


async def all_brokers_know(secured: SecuredCluster, acls: int) -> None:
    """Return once each broker knows this number of ACLs."""
    name = "kafka_server_authorizer_metrics_acls_total_count"

    def known() -> bool:
        return all(secured.metric(node, name) == acls for node in secured.cluster.brokers)

    await asyncio.to_thread(wait_until, known, "ACLs that all brokers know", OUT_S)


def test_the_cluster_secret_is_replaced_while_nodes_are_killed(secured: SecuredCluster) -> None:
    """The steps of docs/OPERATIONS.md work with kill -9 for every restart, while the loads log in by SCRAM."""
    layout = secured.cluster.layout
    old, new = layout.secret_file.read_text().strip(), os.urandom(32).hex()
    with Loads(secured, "secret") as loads:

        def everywhere(*secrets: str) -> None:
            layout.secret_file.write_text("".join(f"{secret}\n" for secret in secrets))
            loads.restart_hard(*secured.cluster.nodes)

        everywhere(old, new)
        everywhere(new, old)
        # The stored form of passwords is encrypted under the old secret.
        again = UserPassword(loads.access.user, loads.access.password)
        secured.as_admin(lambda admin: admin.alter_scram_credentials([again]))
        loads.go_on()
        everywhere(new)
    assert gets_in(secured.cluster, Role.BROKER, new)
    assert not gets_in(secured.cluster, Role.BROKER, old)
