"""Failed logins of an existing user and of unknown names: measures whether their duration reveals which users exist.

Each login comes from a different loopback address, as brokers delay an address that fails too often.
"""

from __future__ import annotations

import base64
import itertools
import os
import random
import string
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from ottla.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from .secured_clusters import MECHANISM, USER
from .security_clients import Peer

Speak = Callable[[Peer, str], bool]
"""A function that tries to log in as this user, and returns whether it was refused."""


def by_scram(peer: Peer, name: str) -> bool:
    """Try SCRAM with an invented proof."""
    nonce = base64.b64encode(os.urandom(18)).decode()
    answer = peer.ask(SaslAuthenticateRequest(auth_bytes=f"n,,n={name},r={nonce}".encode()), 1)
    if answer.error_code:
        return True
    whole_nonce = bytes(answer.auth_bytes).decode().split(",")[0]
    proof = base64.b64encode(os.urandom(32)).decode()
    final = f"c={base64.b64encode(b'n,,').decode()},{whole_nonce},p={proof}"
    return bool(peer.ask(SaslAuthenticateRequest(auth_bytes=final.encode()), 1).error_code)


def by_plain(peer: Peer, name: str) -> bool:
    """Try PLAIN with an invented password."""
    password = base64.b64encode(os.urandom(12)).decode()
    message = SaslAuthenticateRequest(auth_bytes=f"\0{name}\0{password}".encode())
    return bool(peer.ask(message, 1).error_code)


MECHANISMS: dict[str, Speak] = {MECHANISM: by_scram, "PLAIN": by_plain}


def seconds_of(address: str, mechanism: str, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds of `count` logins of the existing user, and of as many unknown names, in ascending order.

    The logins are made in random order.
    """
    sources = _loopback_addresses()
    chance = random.Random()
    order = [True, False] * count
    chance.shuffle(order)
    took: dict[bool, list[float]] = {True: [], False: []}
    for exists in order:
        name = USER if exists else "".join(chance.choices(string.ascii_lowercase, k=len(USER)))
        peer = Peer(address, source=next(sources))
        peer.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        began = time.perf_counter()
        if not MECHANISMS[mechanism](peer, name):
            raise RuntimeError(f"{name!r} has logged in with a password that was made up")
        took[exists].append(time.perf_counter() - began)
        peer.close()
    return sorted(took[True]), sorted(took[False])


def _loopback_addresses() -> Iterator[str]:
    for low, high in itertools.cycle(itertools.product(range(1, 255), range(1, 255))):
        yield f"127.1.{high}.{low}"


def how_often_longer(these: list[float], those: list[float]) -> float:
    """Return the share of pairs in which the login of `these` takes longer; 0.5 if time reveals nothing.

    Both lists are in ascending order.
    """
    above = sum(bisect_left(those, each) + bisect_right(those, each) for each in these)
    return above / 2 / len(these) / len(those)
