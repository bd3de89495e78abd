"""Changes of users, ACLs and quotas by `ottla console` in a cluster with logins and an authorizer."""

from __future__ import annotations

import asyncio
import html
import os
import re
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from ottla.client.admin import Admin, NewTopic, UserPassword
from ottla.client.failures import AuthenticationFailed
from ottla.client.records import TopicPartition
from ottla.protocol.cluster.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.testing import LocalCluster
from tests.console.fakes import hidden_fields, seen
from tests.console.test_console_of_a_cluster import PATIENCE_S, HttpBrowser

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2, security="sasl_plaintext") as running:
        yield running


@contextmanager
def console(cluster: LocalCluster, log: Path, *options: str) -> Iterator[str]:
    """Run a console with the login of the first user, and yield its printed address."""
    words = [sys.executable, "-m", "ottla", "console", "--allow-changes", "--listen", "127.0.0.1:0", *options]
    environment = {**os.environ, "OTTLA_CONFIG_DIR": str(cluster.security_folder)}
    with log.open("w") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, log.read_text()
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, log.read_text()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console") / "log"


@pytest.fixture(scope="module")
def browser(cluster: LocalCluster, log: Path) -> Iterator[HttpBrowser]:
    with console(cluster, log) as address:
        yield HttpBrowser(address)


def secret_in(page: str) -> str:
    found = re.search(r'<pre class="command secret">([^<]+)</pre>', page)
    assert found is not None, seen(page)
    return html.unescape(found[1])


async def topics_seen_by(cluster: LocalCluster, user: str, password: str) -> list[str]:
    options: dict[str, Any] = {
        **cluster.client_options,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    async with Admin(**options) as admin:
        return [topic.name for topic in await admin.describe_topics()]


def refused(browser: HttpBrowser, address: str, **fields: str) -> str:
    """Return the page with which the console refuses a form, or its preview."""
    with pytest.raises(urllib.error.HTTPError) as error:
        browser.change(address, **fields)
    return seen(error.value.read().decode())


def test_a_user_logs_in_with_the_password_that_was_shown(
    cluster: LocalCluster, browser: HttpBrowser, log: Path
) -> None:
    fields = {"user": "ann", "mechanism": "both", "iterations": "4096"}
    first = secret_in(browser.change("/access/users/create", **fields))
    assert asyncio.run(topics_seen_by(cluster, "ann", first)) == []
    browser.until("/access", lambda page: "ann SCRAM-SHA-256 (4,096), SCRAM-SHA-512 (4,096)" in page)
    second = secret_in(browser.change("/access/users/password?user=ann", iterations="4096"))
    assert asyncio.run(topics_seen_by(cluster, "ann", second)) == []
    with pytest.raises(AuthenticationFailed):
        asyncio.run(topics_seen_by(cluster, "ann", first))
    page = browser.change("/access/users/delete?user=ann", again="ann")
    assert "user ann was deleted" in seen(page)
    with pytest.raises(AuthenticationFailed):
        asyncio.run(topics_seen_by(cluster, "ann", second))
    for text in (log.read_text(), page):
        assert first not in text
        assert second not in text
    assert log.read_text().count("/access/users/") == 3


def ottla(cluster: LocalCluster, page: str) -> None:
    """Run the command that a preview shows."""
    found = re.search(r'<pre class="command">([^<]+)</pre>', page)
    assert found is not None, seen(page)
    command = html.unescape(found[1]).replace("ottla ", f"{sys.executable} -m ottla ", 1)
    environment = {**os.environ, "OTTLA_CONFIG_DIR": str(cluster.security_folder)}
    subprocess.run(
        ["bash", "-c", command], env=environment, check=True, timeout=PATIENCE_S, capture_output=True
    )


async def wait_for_acls(cluster: LocalCluster, principal: str, expected: list[str]) -> None:
    """Return once each broker has exactly these ACLs of a principal, since brokers learn of a change a moment later."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    for broker in cluster.bootstrap_servers.split(","):
        async with Admin(**{**cluster.client_options, "bootstrap_servers": broker}) as admin:
            while True:
                found = [str(acl) for acl in await admin.describe_acls(AclFilter(principal=principal))]
                if found == expected:
                    break
                assert asyncio.get_running_loop().time() < deadline, found
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("is_by_command", [False, True])
def test_acls_have_the_effect_that_was_shown(
    cluster: LocalCluster, browser: HttpBrowser, is_by_command: bool
) -> None:
    user = f"reader-{is_by_command}"
    fields = {
        "principal": user,
        "rule": "allow",
        "operation READ": "yes",
        "operation WRITE": "yes",
        "of": f"{user}-'it",
        "pattern": "prefixed",
        "host": "*",
    }

    def change(address: str, **form: str) -> None:
        preview = browser.send(address, step="preview", **form)
        if is_by_command:
            ottla(cluster, preview)
        else:
            browser.post(address, **hidden_fields(preview), step="apply")

    change("/access/acls/create", **fields)
    on_topic = f"Topic:PREFIXED:{user}-'it"
    rules = [f"ALLOW User:{user} from * {operation} on {on_topic}" for operation in ("READ", "WRITE")]
    asyncio.run(wait_for_acls(cluster, f"User:{user}", rules))
    asked = urlencode({"principal": user, "operation": "DESCRIBE", "of": f"{user}-'it-is"})
    browser.until(f"/access?{asked}", lambda page: f"ALLOW User:{user} READ on every topic" in page)
    chosen = {
        "principal": user,
        "operation": "READ",
        "rule": "allow",
        "pattern": "prefixed",
        "resource": "topic",
    }
    change("/access/acls/delete", **chosen, of=f"{user}-'it", host="*")
    asyncio.run(wait_for_acls(cluster, f"User:{user}", rules[1:]))


@contextmanager
def signed_in(cluster: LocalCluster, log: Path, user: str, password: str) -> Iterator[HttpBrowser]:
    """Run a console with --login, and yield a browser that has signed in as this user."""
    with console(cluster, log, "--login") as address:
        browser = HttpBrowser(address.rstrip("/"), is_in=False)
        browser.post("/login", user=user, password=password)
        yield browser


CHANGES = (
    ("/topics/create", {"topic": "new"}, "CREATE on topic 'new'"),
    ("/topics/alter?name=orders", {"set retention.ms": "5"}, "ALTER_CONFIGS on topic 'orders'"),
    ("/brokers/alter?id=1", {"set log.cleaner.backoff.ms": "5"}, "ALTER_CONFIGS on the cluster"),
    ("/access/users/create", {"user": "eve"}, "ALTER on the cluster"),
    ("/access/users/delete?user=bob", {"again": "bob"}, "ALTER on the cluster"),
    (
        "/access/acls/create",
        {"principal": "bob", "operation READ": "yes", "of": "orders"},
        "ALTER on the cluster",
    ),
    ("/access/acls/delete", {"principal": "bob"}, "ALTER on the cluster"),
    ("/access/quotas/new", {"user": "bob", "quota producer_byte_rate": "5"}, "ALTER_CONFIGS on the cluster"),
    ("/reassignments/partitions?name=orders", {"replicas": "0=2,1"}, "ALTER on the cluster"),
    ("/reassignments/elect", {"topic": "turned"}, "ALTER on the cluster"),
)


async def rights_to_see(cluster: LocalCluster) -> None:
    """Make topics and two users, of whom bob may see everything and change nothing."""
    kinds = ((AclResourceType.CLUSTER, CLUSTER_NAME), (AclResourceType.TOPIC, "*"))
    seeing = (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
    async with Admin(**cluster.client_options) as admin:
        await admin.create_topics(
            [NewTopic("orders", assignments={0: [1, 2]}), NewTopic("turned", assignments={0: [1, 2]})]
        )
        users = [UserPassword(user, f"secret of {user}", iterations=4096) for user in ("bob", "carol")]
        await admin.alter_scram_credentials(users)
        await admin.create_acls(
            Acl(kind, name, PatternType.LITERAL, "User:bob", "*", operation, AclPermission.ALLOW)
            for kind, name in kinds
            for operation in seeing
        )
        turned = await admin.alter_partition_reassignments({TopicPartition("turned", 0): [2, 1]})
        assert set(turned.values()) == {None}


def test_changes_without_a_right_are_refused_in_words(cluster: LocalCluster, tmp_path: Path) -> None:
    asyncio.run(rights_to_see(cluster))
    with signed_in(cluster, tmp_path / "log", "bob", "secret of bob") as browser:
        for address, fields, denied in CHANGES:
            text = refused(browser, address, **fields)
            assert f"Not authorized: the console's user needs the right {denied} (" in text, address
    with signed_in(cluster, tmp_path / "log", "carol", "secret of carol") as browser:
        assert "needs the right DESCRIBE on the cluster" in refused(
            browser, "/access/users/create", user="eve"
        )
        rows = {"user": "eve", "quota producer_byte_rate": "5"}
        assert "needs the right DESCRIBE_CONFIGS on the cluster" in refused(
            browser, "/access/quotas/new", **rows
        )
        with pytest.raises(urllib.error.HTTPError) as error:
            browser.read("/reassignments")
        assert "needs the right DESCRIBE on the cluster" in seen(error.value.read().decode())
