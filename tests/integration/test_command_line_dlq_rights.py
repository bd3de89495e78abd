"""Commands of a user with few rights: `ottla dlq` works with the rights of its page, and names a missing right."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Admin, ConsumerRecord, Producer, UserPassword
from ottla.client.worker.letters import letter_headers
from ottla.protocol.cluster.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.testing import LocalCluster
from tests.commands import run_ottla
from tests.console.fakes import seen
from tests.console.test_console_of_a_cluster import HttpBrowser

pytestmark = pytest.mark.cluster

LETTERS, ORIGIN = "orders.dlq", "orders"
GROUP = f"ottla-dlq-replay-{LETTERS}"
PASSWORD = "a password of ann"
Rights = dict[tuple[str, str], str]
LOOK: Rights = {("topic", LETTERS): "READ"}
COUNT: Rights = {**LOOK, ("topic", ORIGIN): "DESCRIBE", ("group", GROUP): "DESCRIBE"}
SEND: Rights = {
    **LOOK,
    ("topic", ORIGIN): "WRITE",
    ("group", GROUP): "READ",
    ("transactional_id", GROUP): "WRITE",
}
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(security="sasl_plaintext") as running:
        for name in (LETTERS, ORIGIN):
            running.create_topic(name)
        asyncio.run(fill(running))
        yield running


async def fill(cluster: LocalCluster) -> None:
    """Write three letters, and create the user."""
    async with Producer(**cluster.client_options) as producer:
        for number in range(3):
            record = ConsumerRecord(ORIGIN, 0, number, 0, b"k", b"v%d" % number)
            headers = letter_headers(record, "billing", ValueError("no"), 1)
            await producer.send(LETTERS, record.value, record.key, headers=headers)
    async with Admin(**cluster.client_options) as admin:
        await admin.alter_scram_credentials([UserPassword("ann", PASSWORD)])


def give(cluster: LocalCluster, rights: Rights) -> None:
    """Give the user exactly these rights."""

    async def change() -> None:
        async with Admin(**cluster.client_options) as admin:
            await admin.delete_acls([AclFilter(principal="User:ann")])
            await admin.create_acls(
                Acl(
                    AclResourceType[kind.upper()],
                    name,
                    PatternType.LITERAL,
                    "User:ann",
                    "*",
                    AclOperation[operation],
                    AclPermission.ALLOW,
                )
                for (kind, name), operation in rights.items()
            )

    asyncio.run(change())


@pytest.fixture
def environ(cluster: LocalCluster, tmp_path: Path) -> dict[str, str]:
    """Return an environment with the login of the user."""
    options: dict[str, Any] = cluster.client_options
    file = tmp_path / "ann.properties"
    file.write_text(
        f"security.protocol={options['security_protocol']}\n"
        f"sasl.mechanism={options['sasl_mechanism']}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="ann" password="{PASSWORD}";\n'
    )
    return {
        **os.environ,
        "OTTLA_BOOTSTRAP": cluster.bootstrap_servers,
        "OTTLA_COMMAND_CONFIG": str(file),
    }


@pytest.fixture
def ann(environ: dict[str, str]) -> Run:
    """Run a command as the user."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return run_ottla("dlq", *words, environ=environ)

    return run


def without(rights: Rights, kind: str, name: str) -> Rights:
    return {key: operation for key, operation in rights.items() if key != (kind, name)}


COMMANDS = {
    "ls": (LOOK, ("ls", LETTERS)),
    "show": (LOOK, ("show", LETTERS, "0", "1")),
    "count": (COUNT, ("replay", LETTERS, "--dry-run", "--from-start")),
    "send": (SEND, ("replay", LETTERS, "--yes", "--from-start")),
}
UNSEEN = "there is no topic '{}' that User:ann may see"
REFUSALS = [
    ("ls", "topic", LETTERS, None, UNSEEN.format(LETTERS)),
    ("ls", "topic", LETTERS, "DESCRIBE", f"denied: READ on topic '{LETTERS}' for User:ann"),
    ("show", "topic", LETTERS, None, UNSEEN.format(LETTERS)),
    ("show", "topic", LETTERS, "DESCRIBE", f"denied: READ on topic '{LETTERS}' for User:ann"),
    ("count", "topic", LETTERS, None, UNSEEN.format(LETTERS)),
    ("count", "topic", LETTERS, "DESCRIBE", f"denied: READ on topic '{LETTERS}' for User:ann"),
    (
        "count",
        "topic",
        ORIGIN,
        None,
        f"{UNSEEN.format(ORIGIN)}, which 3 letters go to; a replay needs WRITE on it",
    ),
    ("count", "group", GROUP, None, f"denied: DESCRIBE on group '{GROUP}' for User:ann"),
    ("send", "topic", ORIGIN, "DESCRIBE", f"denied: WRITE on topic '{ORIGIN}' for User:ann"),
    ("send", "group", GROUP, "DESCRIBE", f"denied: READ on group '{GROUP}'"),
    ("send", "transactional_id", GROUP, None, f"denied: WRITE on transactional id '{GROUP}' for User:ann"),
]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_works_with_the_rights_of_its_page(cluster: LocalCluster, ann: Run, name: str) -> None:
    rights, words = COMMANDS[name]
    give(cluster, rights)
    done = ann(*words)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("name", "kind", "resource", "instead", "reason"),
    REFUSALS,
    ids=lambda value: str(value)[:24],
)
def test_a_missing_right_is_named(
    cluster: LocalCluster, ann: Run, name: str, kind: str, resource: str, instead: str | None, reason: str
) -> None:
    rights, words = COMMANDS[name]
    rights = without(rights, kind, resource)
    give(cluster, rights if instead is None else {**rights, (kind, resource): instead})
    done = ann(*words)
    assert done.returncode == 1
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        (ORIGIN, ("topic", "describe", ORIGIN)),
        (ORIGIN, ("topic", "trim", ORIGIN, "--offset", "1")),
        (ORIGIN, ("consume", ORIGIN, "-e")),
        ("nowhere", ("config", "set", "topic", "nowhere", "retention.ms=1d")),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_user_without_rights_reads_that_a_topic_may_exist(
    cluster: LocalCluster, environ: dict[str, str], topic: str, words: tuple[str, ...]
) -> None:
    give(cluster, {("topic", "nowhere"): "ALTER_CONFIGS"})
    done = run_ottla(*words, environ=environ)
    assert done.returncode == 1
    assert UNSEEN.format(topic) in done.stderr


def test_the_console_names_a_missing_right(
    cluster: LocalCluster, environ: dict[str, str], tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "ottla", "console", "--allow-changes", "--listen", "127.0.0.1:0"]
    give(cluster, COUNT)
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True, env=environ) as process,
    ):
        try:
            assert process.stdout is not None
            browser = HttpBrowser(process.stdout.readline().strip())
            assert "ValueError" in browser.read(f"/letters?topic={LETTERS}")
            address, fields = f"/letters/replay?topic={LETTERS}", {"topic": LETTERS, "from_start": "yes"}
            assert "needs the right" not in browser.send(address, step="preview", **fields)
            with pytest.raises(urllib.error.HTTPError) as refused:
                browser.change(address, **fields)
            right = f"the console's user needs the right WRITE on transactional id '{GROUP}'"
            assert right in seen(refused.value.read().decode())
            give(cluster, {("topic", LETTERS): "DESCRIBE"})
            with pytest.raises(urllib.error.HTTPError) as refused:
                browser.read(f"/letters?topic={LETTERS}")
            assert f"needs the right READ on topic '{LETTERS}'" in seen(refused.value.read().decode())
        finally:
            process.terminate()
            process.wait(60)
