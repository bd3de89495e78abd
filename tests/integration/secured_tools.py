"""Actions of a logged-in administrator with Kafka's own tools.

Each scene is played against Ottla and against Kafka, by `test_secured_tools.py` here and in tests/compat/. So both give
the same answers.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from tests import java
from tests.cluster import wait_until
from tests.integration.secured_cells import jaas_quoted

ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
_RESOURCE = re.compile(r"resource `ResourcePattern\(resourceType=(\w+), name=(.*), patternType=(\w+)\)`")
_ENTRY = re.compile(r"\(principal=(.*), host=(.*), operation=(\w+), permissionType=(\w+)\)")

Acls = dict[tuple[str, str, str], set[tuple[str, str, str, str]]]
"""ACL entries by resource, each with principal, host, operation and permission."""


class SecuredShell:
    """Kafka's tools with one user's login to a cluster."""

    def __init__(self, tools: java.Tools, bootstrap: str, config: Path) -> None:
        self._tools = tools
        self.arguments = ("--bootstrap-server", bootstrap, "--command-config", str(config))

    def __call__(self, tool: str, *arguments: str, status: int = 0) -> str:
        return self._tools.run(tool, *self.arguments, *arguments, status=status)

    def acls(self, *filters: str) -> Acls:
        """Return the ACLs that `--list` shows."""
        return entries(self(ACLS, "--list", *filters))


def client_config(file: Path, user: str, password: str, ca: Path, mechanism: str = "PLAIN") -> Path:
    """Write the properties of a Java client that logs in over TLS."""
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    given = f"username={jaas_quoted(user)} password={jaas_quoted(password)}"
    jaas = f"org.apache.kafka.common.security.{module} required {given};"
    doubled = jaas.replace("\\", "\\\\")
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nsasl.jaas.config={doubled}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
    )
    return file


def entries(said: str) -> Acls:
    """Parse the ACLs that the tool prints."""
    found: Acls = {}
    for line in said.splitlines():
        if resource := _RESOURCE.search(line):
            kind, name, pattern = resource.groups()
            of_resource = found.setdefault((kind, name, pattern), set())
        elif entry := _ENTRY.search(line):
            principal, host, operation, permission = entry.groups()
            of_resource.add((principal, host, operation, permission))
    return found


def _allowed(*operations: str, who: str = "User:bob", host: str = "*") -> set[tuple[str, str, str, str]]:
    return {(who, host, operation, "ALLOW") for operation in operations}


def acls_are_added_listed_and_removed(shell: SecuredShell) -> None:
    topic, group, txn = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("topic", "group", "txn"))
    of_topic, prefixed = ("TOPIC", topic, "LITERAL"), ("TOPIC", topic, "PREFIXED")
    bob = ("--add", "--allow-principal", "User:bob")
    producer = shell(ACLS, *bob, "--producer", "--idempotent", "--topic", topic, "--transactional-id", txn)
    assert entries(producer) == {
        of_topic: _allowed("WRITE", "CREATE", "DESCRIBE"),
        ("TRANSACTIONAL_ID", txn, "LITERAL"): _allowed("WRITE", "DESCRIBE"),
        ("CLUSTER", "kafka-cluster", "LITERAL"): _allowed("IDEMPOTENT_WRITE"),
    }
    consumer = shell(ACLS, *bob, "--consumer", "--topic", topic, "--group", group)
    assert "operation=DESCRIBE, permissionType=ALLOW)) already exists" in consumer
    assert shell.acls("--topic", topic) == {of_topic: _allowed("WRITE", "CREATE", "DESCRIBE", "READ")}
    assert shell.acls("--group", group) == {("GROUP", group, "LITERAL"): _allowed("READ")}
    prefix = ("--topic", topic, "--resource-pattern-type", "prefixed")
    shell(ACLS, "--add", "--deny-principal", "User:eve", "--operation", "Write", *prefix)
    denied = {("User:eve", "*", "WRITE", "DENY")}
    assert shell.acls(*prefix) == {prefixed: denied}
    matching = ("--topic", f"{topic}-more", "--resource-pattern-type", "match")
    assert shell.acls(*matching) == {prefixed: denied}
    assert shell.acls("--principal", "User:eve") == {prefixed: denied}
    shell(
        ACLS, "--remove", "--allow-principal", "User:bob", "--operation", "Read", "--topic", topic, "--force"
    )
    assert shell.acls("--topic", topic) == {of_topic: _allowed("WRITE", "CREATE", "DESCRIBE")}
    shell(ACLS, "--remove", "--topic", topic, "--resource-pattern-type", "any", "--force")
    for rest in (("--group", group), ("--transactional-id", txn), ("--cluster",)):
        shell(ACLS, "--remove", *rest, "--force")
    assert shell.acls("--principal", "User:bob") == {}
    assert shell.acls("--topic", topic, "--resource-pattern-type", "any") == {}


def acls_name_networks(shell: SecuredShell) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    of_topic = ("--topic", topic)
    bob = ("--allow-principal", "User:bob", "--operation", "All", *of_topic)
    shell(ACLS, "--add", *bob, "--allow-host", "10.0.0.0/8", "--allow-host", "127.0.0.1")
    eve = ("--deny-principal", "User:eve", "--operation", "Read", *of_topic, "--deny-host", "10.1.0.0/16")
    shell(ACLS, "--add", *eve)
    networks = _allowed("ALL", host="10.0.0.0/8") | {("User:eve", "10.1.0.0/16", "READ", "DENY")}
    everything = {("TOPIC", topic, "LITERAL"): networks | _allowed("ALL", host="127.0.0.1")}
    assert shell.acls(*of_topic) == everything
    shell(ACLS, "--remove", *bob, "--allow-host", "127.0.0.1", "--force")
    assert shell.acls(*of_topic) == {("TOPIC", topic, "LITERAL"): networks}
    shell(ACLS, "--remove", *of_topic, "--force")
    assert shell.acls(*of_topic) == {}


def acls_of_users_tokens_and_the_cluster(shell: SecuredShell) -> None:
    token, user = f"token-{uuid.uuid4().hex[:8]}", f"User:{uuid.uuid4().hex[:8]}"
    carl = ("--allow-principal", "User:carl")
    shell(ACLS, "--add", *carl, "--operation", "CreateTokens", "--user-principal", user)
    shell(ACLS, "--add", *carl, "--operation", "Describe", "--delegation-token", token)
    shell(ACLS, "--add", *carl, "--operation", "ClusterAction", "--cluster")
    expected = {
        ("USER", user, "LITERAL"): _allowed("CREATE_TOKENS", who="User:carl"),
        ("DELEGATION_TOKEN", token, "LITERAL"): _allowed("DESCRIBE", who="User:carl"),
        ("CLUSTER", "kafka-cluster", "LITERAL"): _allowed("CLUSTER_ACTION", who="User:carl"),
    }
    assert shell.acls("--principal", "User:carl") == expected
    for rest in (("--user-principal", user), ("--delegation-token", token), ("--cluster",)):
        shell(ACLS, "--remove", *rest, "--force")
    assert shell.acls("--principal", "User:carl") == {}


def acls_that_make_no_sense_are_refused(shell: SecuredShell) -> None:
    said = shell(ACLS, "--add", "--allow-principal", "bob", "--operation", "Read", "--topic", "t", status=1)
    assert "Invalid Principal" in said or "expected a string in format principalType:principalName" in said
    said = shell(
        ACLS,
        "--add",
        "--allow-principal",
        "User:b",
        "--operation",
        "Read",
        "--transactional-id",
        "t",
        status=1,
    )
    assert "ResourceType TRANSACTIONAL_ID only supports operations" in said


def passwords_and_quotas_of_users(shell: SecuredShell) -> None:
    name = f"zoe-{uuid.uuid4().hex[:8]}"
    user = ("--entity-type", "users", "--entity-name", name)

    def alter(*change: str, status: int = 0) -> str:
        return shell(CONFIGS, "--alter", *user, *change, status=status)

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        alter("--add-config", f"{mechanism}=[iterations=5000,password=zoe's]")
    said = alter("--add-config", "SCRAM-SHA-256=[password=a],SCRAM-SHA-512=[password=a]", status=1)
    assert "A user credential cannot be altered twice in the same request" in said
    said = alter("--add-config", "SCRAM-SHA-256=[iterations=20000,password=a]", status=1)
    assert "Too many iterations" in said
    passwords = {f"SCRAM-SHA-{bits}=iterations=5000" for bits in (256, 512)}

    def described_passwords() -> set[str]:
        """Return the described passwords, whose order in Apache Kafka follows from the user's name."""
        listed = shell(CONFIGS, "--describe", *user).partition(f"'{name}' are ")[2]
        return set(listed.strip().split(", "))

    # A broker of Apache Kafka may describe the state before the last change for a moment.
    wait_until(lambda: described_passwords() == passwords, "both passwords described")
    alter("--delete-config", "SCRAM-SHA-256")
    said = alter("--delete-config", "SCRAM-SHA-256", status=1)
    assert "Attempt to delete a user credential that does not exist" in said
    alter("--add-config", "producer_byte_rate=1000000,request_percentage=50")
    described = shell(CONFIGS, "--describe", *user)
    assert f"Quota configs for user-principal '{name}' are " in described
    assert {"producer_byte_rate=1000000.0", "request_percentage=50.0"} <= set(re.split(r"[ ,\n]+", described))
    assert f"'{name}' are SCRAM-SHA-512=iterations=5000" in described
    client = ("--entity-type", "clients", "--entity-name", "c")
    alter(*client, "--add-config", "consumer_byte_rate=5")
    said = shell(CONFIGS, "--describe", *user, *client)
    assert f"Quota configs for user-principal '{name}', client-id 'c' are consumer_byte_rate=5.0" in said
    alter(*client, "--delete-config", "consumer_byte_rate")
    alter("--delete-config", "producer_byte_rate,request_percentage")
    alter("--delete-config", "SCRAM-SHA-512")
    assert name not in shell(CONFIGS, "--describe", "--entity-type", "users")


SCENES = (
    acls_are_added_listed_and_removed,
    acls_name_networks,
    acls_of_users_tokens_and_the_cluster,
    acls_that_make_no_sense_are_refused,
    passwords_and_quotas_of_users,
)
