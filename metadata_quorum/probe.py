"""The second half of the fast fence: a test whether the process of a broker's heartbeat port is really gone.

A session that the peer ended is only a hint: a broker may have dropped its connection and live. Its UDP port is
therefore probed. Proof of death is a refusal: ECONNREFUSED on a connected socket means that the port is closed, so its
process is gone. From another machine, however, the refusal is an ICMP message, which any host on the network can forge;
an attacker who also cuts the session could have a living broker fenced. A refusal therefore counts if the broker is on
this machine, or if an operator states that the network can be trusted. Proof of life is an authentic answer, with the
keys of the ended session. Silence, a timeout and every local error prove nothing.
"""

import asyncio
import os
import socket
from enum import Enum

from ..protocol.session.liveness_datagrams import (
    NONCE_SIZE,
    DatagramSeal,
    InvalidDatagram,
    Probe,
    ProbeAnswer,
)

#: Times of the probes, in seconds from the start: a dying process closes its sockets in any order, within ms.
ASK_AT_S = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64)
_LAST_WAIT_S = 0.64
_ANSWER_BYTES_MAX = 512


class ProbeResult(Enum):
    """The result of a probe."""

    GONE = "the port is refused"
    ALIVE = "it answered"
    UNKNOWN = "nobody answered"


def is_own_address(host: str) -> bool:
    """Return whether this machine has that IP address."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as trying:
        try:
            trying.bind((host, 0))
        except OSError:
            return False
    return True


def is_refused(seal: DatagramSeal, host: str, port: int) -> bool:
    """Return whether a broker's heartbeat port refuses at once, as on this machine. Does not wait, so False proves
    nothing."""
    try:
        with _connected(host, port) as asking:
            asking.send(seal.encode(Probe(os.urandom(NONCE_SIZE))))
            asking.recv(_ANSWER_BYTES_MAX)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


async def probe(seal: DatagramSeal, host: str, port: int) -> ProbeResult:
    """Probe a broker's heartbeat port, given by IP address and port, for about a second."""
    try:
        asking = _connected(host, port)
    except OSError:
        return ProbeResult.UNKNOWN
    with asking:
        return await _ask(asking, seal)


def _connected(host: str, port: int) -> socket.socket:
    """Return a UDP socket that receives only from that address, refusals included. Raises OSError."""
    asking = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        asking.setblocking(False)
        asking.connect((host, port))
    except OSError:
        asking.close()
        raise
    return asking


async def _ask(asking: socket.socket, seal: DatagramSeal) -> ProbeResult:
    loop = asyncio.get_running_loop()
    nonce = os.urandom(NONCE_SIZE)
    readable = asyncio.Event()
    loop.add_reader(asking.fileno(), readable.set)
    try:
        start = loop.time()
        for ask_next in (*ASK_AT_S[1:], ASK_AT_S[-1] + _LAST_WAIT_S):
            try:
                asking.send(seal.encode(Probe(nonce)))
            except ConnectionRefusedError:
                return ProbeResult.GONE
            except OSError:
                return ProbeResult.UNKNOWN
            while (wait := start + ask_next - loop.time()) > 0:
                try:
                    await asyncio.wait_for(readable.wait(), wait)
                except TimeoutError:
                    break
                readable.clear()
                result = _read(asking, seal, nonce)
                if result is not None:
                    return result
        return ProbeResult.UNKNOWN
    finally:
        loop.remove_reader(asking.fileno())


def _read(asking: socket.socket, seal: DatagramSeal, nonce: bytes) -> ProbeResult | None:
    try:
        answer = seal.decode(asking.recv(_ANSWER_BYTES_MAX))
    except ConnectionRefusedError:
        return ProbeResult.GONE
    except (OSError, InvalidDatagram):
        return None
    is_answer = isinstance(answer, ProbeAnswer) and answer.nonce == nonce
    return ProbeResult.ALIVE if is_answer else None
