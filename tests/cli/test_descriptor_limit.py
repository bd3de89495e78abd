"""A node may open as many files as its hard limit permits, though its shell sets a low limit."""

from __future__ import annotations

import resource
import subprocess
import sys

NODE = """
import os, resource, signal
from ottla.cli.nodes.node import run_nodes

class Node:
    async def start(self):
        print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

    async def stop(self):
        pass

run_nodes([Node()])
"""


def test_a_node_takes_the_descriptors_that_it_may_have() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = subprocess.run(
        [sys.executable, "-c", NODE],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)),
    )
    assert int(done.stdout) == hard
