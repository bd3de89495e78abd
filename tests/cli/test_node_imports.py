"""The modules that a node loads at its start: memory and start-up time are only spent on used modules."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.local_cluster import forked_node

NOT_NEEDED = {
    # Certificates and stores, which only listeners with TLS have, and the times of their ends.
    "cryptography.x509",
    "cryptography.hazmat.primitives.serialization",
    "ottla.network.tls.stores",
    "ottla.network.tls.contexts",
    "ottla.dataplane.security.principal_mapping",
    "datetime",
    # Codec for host names beyond ASCII, in listening and dialling.
    "encodings.idna",
    "stringprep",
    # Patterns of clients and compressed batches: the first of each loads its library.
    "re2",
    "cramjam",
    "lz4",
    "zstandard",
    # Imported by the checksum package to report its version.
    "importlib.metadata",
    # Used by commands for their output, and their client.
    "rich",
    "ottla.client",
}
NOT_NEEDED_BY = {
    "quorum": NOT_NEEDED | {"ottla.cli.nodes.quorum_tls"},
    "broker": NOT_NEEDED
    # Used for packing archives, and by the first member of a group only.
    | {"shutil", "bz2", "lzma", "uuid", "platform"}
    # Logins, which only listeners with SASL have.
    | {
        "ottla.dataplane.configuration.sasl",
        "ottla.dataplane.security.oauth",
        "ottla.dataplane.security.sasl.kerberos",
        "ottla.dataplane.security.sasl.plain",
    }
    # Used for copying topics of another cluster.
    | {"ottla.dataplane.mirroring.mirror_link", "ottla.dataplane.mirroring.fetching"}
    # Used for records of share groups: the leaders' windows, locks and share sessions.
    | {
        "ottla.dataplane.assembly.share_parts",
        "ottla.dataplane.handlers.sharing",
        "ottla.dataplane.share.leader",
        "ottla.dataplane.share.partition",
        "ottla.dataplane.share.sessions",
    },
}
NEEDED_BY = {
    "quorum": {"cryptography.hazmat.primitives.ciphers.aead", "pysyncobj"},
    "broker": {"cryptography.hazmat.primitives.ciphers.aead", "ottla.dataplane.assembly.parts"},
}
ASSEMBLE = """
import asyncio, json, sys
import uvloop
from ottla.cli.nodes import endpoint
from ottla.cli.nodes.config_providers import ResolvedSettings
from ottla.cli.nodes.node import build, parser
from ottla.network.dialing import connected_socket

async def assemble(role, settings):
    parser(role).parse_args(["-c", "node.properties"])
    served = endpoint.endpoint_of({"metrics.listener": "127.0.0.1:0"}, endpoint.NodesHere([]))
    await served.start()
    try:
        await connected_socket("127.0.0.1", 1)
    except OSError:
        pass  # Nobody listens there. It was dialled.
    node = build(role, ResolvedSettings(settings))
    if role == "broker":
        from ottla.dataplane.assembly.foundation import lay_foundation
        from ottla.dataplane.assembly.parts import BrokerParts

        BrokerParts(node.config, bytes(16), await lay_foundation(node.config), print)

uvloop.run(assemble(sys.argv[1], json.loads(sys.argv[2])))
print(json.dumps(list(sys.modules)))
"""
COLLECTED = """
import gc
from ottla.network.garbage_collection import only_new_garbage_collected

class Node:
    made = 0

    def __init__(self):
        self.itself = self
        Node.made += 1

    def __del__(self):
        Node.made -= 1

gc.collect()
old, before = Node(), gc.get_threshold()
with only_new_garbage_collected(freezes=True):
    old = None
    for _ in range(100_000):
        Node()
assert gc.get_threshold() == before, gc.get_threshold()
assert gc.get_freeze_count() > 10_000, "what was made is looked through again"
print(Node.made)
"""


def loaded_by(role: str, folder: Path) -> set[str]:
    """Return the modules of a process that has made all parts of a node without TLS."""
    secret = folder / "secret"
    secret.write_text("3f9a17c05be28d64" * 2)
    settings = {
        "node.id": "1",
        "cluster.id": "c",
        "cluster.secret.file": str(secret),
        "controller.quorum.voters": "1@127.0.0.1:9193" if role == "quorum" else "101@127.0.0.1:9193",
        "log.dirs": str(folder / "data"),
        "listeners": "CONTROLLER://127.0.0.1:9193" if role == "quorum" else "PLAINTEXT://127.0.0.1:0",
    }
    done = subprocess.run(
        [sys.executable, "-c", ASSEMBLE, role, json.dumps(settings)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    return {role: loaded_by(role, tmp_path_factory.mktemp(role)) for role in NEEDED_BY}


@pytest.mark.parametrize("role", NEEDED_BY)
def test_a_node_without_tls_loads_nothing_that_it_does_not_use(
    loaded: dict[str, set[str]], role: str
) -> None:
    assert loaded[role] >= NEEDED_BY[role]
    assert loaded[role] & NOT_NEEDED_BY[role] == set()


@pytest.mark.parametrize("role", NEEDED_BY)
def test_all_that_a_node_loads_is_loaded_before_it_is_forked(loaded: dict[str, set[str]], role: str) -> None:
    program = f"from {forked_node.__name__} import load; load({role!r})\n"
    program += "import json, sys; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded[role] - set(json.loads(done.stdout)) == set()


def test_garbage_of_the_start_is_collected_while_it_is_new() -> None:
    """Each dataclass with slots leaves a class behind, two megabytes in all."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECTED], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 20_000, "of 100,000 circles"
