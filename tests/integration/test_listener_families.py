"""Listeners without a host take IPv4 and IPv6 (KAFKA-4260). They are tried in a network of their own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest

from tests.faults.namespaces import unavailable

IN_A_NAMESPACE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_listener_without_a_host_is_reached_by_both_families() -> None:
    program = [sys.executable, "-m", "tests.integration.every_address"]
    done = subprocess.run(
        [*IN_A_NAMESPACE, *program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"broker": ["127.0.0.1", "::1"], "quorum": [1, 1]}
