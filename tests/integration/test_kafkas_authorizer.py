"""Our authorizer decides as Kafka's StandardAuthorizer does, over random ACLs and questions."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from ottla.dataplane.security.authorization.authorizer import Authorizer
from ottla.protocol.cluster.acls import Acl, AclOperation, AclPermission, AclResourceType, PatternType
from tests import java

pytestmark = [
    pytest.mark.java,
    java.needs_java,
    pytest.mark.skipif(shutil.which("javac") is None, reason="needs javac"),
]

CASES = 400
PRINCIPALS = ["User:ann", "User:bob", "User:*"]
HOSTS = ["*", "10.0.0.1", "10.0.0.2"]
NAMES = ["a", "ab", "abc", "b", "ba", "hardcode", "*"]
OPERATIONS = [
    operation for operation in AclOperation if AclOperation.ALL < operation < AclOperation.TWO_PHASE_COMMIT
]
# Kafka does not answer for others.
OPERATIONS_ON_SOME = [AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALTER]


def random_acl(chance: random.Random) -> Acl:
    return Acl(
        chance.choice([AclResourceType.TOPIC, AclResourceType.GROUP]),
        chance.choice(NAMES),
        chance.choice([PatternType.LITERAL, PatternType.PREFIXED]),
        chance.choice(PRINCIPALS),
        chance.choice(HOSTS),
        chance.choice([AclOperation.ALL, *OPERATIONS]),
        chance.choice([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY]),
    )


def case(chance: random.Random) -> Iterator[tuple[str, bool | None]]:
    """Yield lines for Kafka's authorizer, each question with Ottla's answer."""
    is_open = chance.random() < 0.3
    ours = Authorizer(frozenset({"User:root"}), open_without_acls=is_open)
    yield f"new\tUser:root\t{str(is_open).lower()}", None
    acls = {random_acl(chance) for _ in range(chance.randrange(9))}
    ours.change((acl, True) for acl in acls)
    for acl in acls:
        yield "\t".join(["acl", *(str(int(part)) if isinstance(part, int) else part for part in acl)]), None
    for _ in range(25):
        kind = chance.choice([AclResourceType.TOPIC, AclResourceType.GROUP])
        principal = chance.choice(["User:ann", "User:bob", "User:eve", "User:root"])
        host = chance.choice(["10.0.0.1", "10.0.0.2", "10.9.9.9"])
        grants = ours.grants(principal, host)
        if chance.random() < 0.3:
            operation = chance.choice(OPERATIONS_ON_SOME)
            line = f"some\t{int(kind)}\t{int(operation)}\t{principal}\t{host}"
            yield line, grants.allows_for_some(operation, kind)
        else:
            operation = chance.choice(OPERATIONS)
            name = chance.choice([*(known for known in NAMES if known != "*"), "zz"])
            line = f"ask\t{int(kind)}\t{name}\t{int(operation)}\t{principal}\t{host}"
            yield line, bool(grants.mask(kind, name) >> operation & 1)


def test_kafkas_authorizer_decides_the_same() -> None:
    lines = [line for seed in range(CASES) for line in case(random.Random(seed))]
    done = subprocess.run(
        java.compiled_command("AuthorizerAnswers"),
        input="".join(f"{line}\n" for line, _ in lines),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [word for word in done.stdout.split() if word in ("ALLOWED", "DENIED")]
    asked = [(line, ours) for line, ours in lines if ours is not None]
    assert len(answers) == len(asked)
    differing = [
        (line, ours, theirs)
        for (line, ours), theirs in zip(asked, answers, strict=True)
        if ours != (theirs == "ALLOWED")
    ]
    assert not differing
    assert {"ALLOWED", "DENIED"} == set(answers)
