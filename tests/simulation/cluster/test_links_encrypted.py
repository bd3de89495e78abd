"""The quorum's links are encrypted in the simulation, too: an eavesdropper reads nothing, and cannot change messages
unnoticed.

Brokers' records pass on plaintext listeners there, which shows that the eavesdropper can read unencrypted data.
"""

from __future__ import annotations

import json
from typing import TypedDict

from tests.simulation.cluster.test_determinism import printed_by

SEED = 3
LISTEN = """
import json, sys
from unittest.mock import patch
from tests.simulation.cluster.cluster import RAFT_PORT, SECRET, QUORUM_SECRET
from tests.simulation.cluster.playing import warm_up
from tests.simulation.cluster.scenario import play
from tests.simulation.machine.datagrams import DatagramSocket
from tests.simulation.machine.streams import StreamEnd

heard = {"links": bytearray(), "datagrams": bytearray(), "clients": bytearray()}
say, send = StreamEnd.send, DatagramSocket.send

def overheard(end, data):
    taken = say(end, data)
    heard["links" if RAFT_PORT in (end.local[1], end.remote[1]) else "clients"] += bytes(data[:taken])
    return taken

def overheard_datagram(socket, data, remote):
    heard["datagrams"] += data
    return send(socket, data, remote)

warm_up()
with patch.object(StreamEnd, "send", overheard), patch.object(DatagramSocket, "send", overheard_datagram):
    play(int(sys.argv[1]))
words = {"topic": b"orders", "setting": b"segment.ms", "secret": SECRET, "other": QUORUM_SECRET}
print(json.dumps({
    "bytes": {where: len(said) for where, said in heard.items()},
    "read": {where: [name for name, word in words.items() if word in said] for where, said in heard.items()},
}))
"""

ALTER = """
import json, sys
from random import Random
from unittest.mock import patch
from ottla.protocol.session.frames import EncryptedChannel, FrameError
from tests.simulation.cluster.cluster import RAFT_PORT
from tests.simulation.cluster.playing import warm_up
from tests.simulation.cluster.scenario import play
from tests.simulation.machine.streams import StreamEnd

counts, chance = {"altered": 0, "noticed": 0}, Random(sys.argv[1])
say, opened = StreamEnd.send, EncryptedChannel._opened

def altered(end, data):
    if len(data) and RAFT_PORT in (end.local[1], end.remote[1]) and chance.random() < 0.01:
        counts["altered"] += 1
        data = bytearray(data)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return say(end, data)

def noticed(channel, protected):
    try:
        return opened(channel, protected)
    except FrameError:
        counts["noticed"] += 1
        raise

warm_up()
with patch.object(StreamEnd, "send", altered), patch.object(EncryptedChannel, "_opened", noticed):
    play(int(sys.argv[1]))
print(json.dumps(counts))
"""


class Heard(TypedDict):
    """The number of overheard bytes, and the readable words, by sender."""

    bytes: dict[str, int]
    read: dict[str, list[str]]


def test_nothing_of_the_metadata_can_be_read_on_the_way() -> None:
    heard: Heard = json.loads(printed_by("-c", LISTEN, str(SEED), hash_seed="0").splitlines()[-1])
    assert heard["bytes"]["links"] > 50_000
    assert heard["bytes"]["datagrams"] > 1_000
    assert heard["read"]["links"] == heard["read"]["datagrams"] == []
    assert "topic" in heard["read"]["clients"]


def test_what_is_changed_on_the_way_ends_the_link_and_nothing_else() -> None:
    """A bit of one in a hundred sends is flipped all the time: all invariants hold, and all clients finish in time."""
    counts: dict[str, int] = json.loads(printed_by("-c", ALTER, str(SEED), hash_seed="0").splitlines()[-1])
    assert counts["altered"] >= counts["noticed"] > 5
