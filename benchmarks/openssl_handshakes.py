"""OpenSSL's own programs, for `benchmarks.security`: clients that make handshakes, and a bare server.

The CPU of `openssl s_server` for a handshake is OpenSSL's cost of its half, and next to nothing else.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .kafka import HOST, free_ports

START_TIMEOUT_S = 60
_COUNTED = re.compile(r"(\d+) connections in ")


def shaken_hands(address: str, ca_file: Path, seconds: int, clients: int) -> int:
    """Return the number of handshakes that `clients` clients made in `seconds` seconds, each one after the other."""
    command = ["openssl", "s_time", "-connect", address, "-new", "-tls1_3", "-time", str(seconds)]
    command += ["-verify", "9", "-CAfile", str(ca_file), "-no-CApath", "-no-CAstore"]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for _ in range(clients)
    ]
    return sum(_counted(program.communicate()[0]) for program in running)


def _counted(said: str) -> int:
    found = _COUNTED.search(said)
    if found is None:
        raise RuntimeError(f"openssl s_time has counted nothing: {said}")
    return int(found.group(1))


@contextmanager
def bare_server(own_file: Path) -> Iterator[tuple[str, int]]:
    """Run `openssl s_server` with the key and the chain of this file; yield its address and its process id."""
    (port,) = free_ports(1)
    own = str(own_file)
    command = ["openssl", "s_server", "-quiet", "-accept", f"{HOST}:{port}", "-naccept", "1000000000"]
    command += ["-key", own, "-cert", own, "-cert_chain", own]
    program = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_listening(port)
        yield f"{HOST}:{port}", program.pid
    finally:
        program.kill()
        program.wait()


def _wait_listening(port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            socket.create_connection((HOST, port), START_TIMEOUT_S).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"openssl s_server does not listen after {START_TIMEOUT_S} s") from None
            time.sleep(0.02)
        else:
            return
