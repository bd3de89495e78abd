"""Asks brokers, with plain sockets, which brokers take part: cheap enough to be asked fifty times a
second.
"""

from __future__ import annotations

import socket

from ...protocol.codec import MalformedMessage
from ...protocol.messages.cluster import DescribeClusterRequest
from ...protocol.messages.headers import decode_response, encode_request
from .ports import HOST

VERSION = 2
TIMEOUT_S = 1.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024


def brokers_seen_by(port: int, cluster_id: str) -> set[int]:
    """The ids that the broker on `port` of this machine names as taking part; none while it does not
    answer, or if it belongs to another cluster.
    """
    request = encode_request(DescribeClusterRequest(), VERSION, 0, "ottla-up")
    try:
        with socket.create_connection((HOST, port), TIMEOUT_S) as connection:
            connection.sendall(request)
            size = int.from_bytes(_exactly(connection, 4), "big")
            if size > MAX_ANSWER_BYTES:
                return set()
            answer = decode_response(DescribeClusterRequest, _exactly(connection, size), VERSION)[1]
    except (OSError, MalformedMessage):
        return set()
    if answer.cluster_id != cluster_id:
        return set()
    return {broker.broker_id for broker in answer.brokers if not broker.is_fenced}


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(min(count, 65536))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
