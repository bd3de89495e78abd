"""Requests to brokers, over plain sockets, for the brokers that have joined the cluster; cheap enough for fifty a
second."""

from __future__ import annotations

import os
import socket
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from ...protocol.messages.cluster import DescribeClusterRequest
from ...protocol.messages.headers import decode_response, encode_request
from ...protocol.messages.node_authentication import AuthenticateNodeRequest
from ...protocol.session.node_proof import (
    INCARNATION_BYTES,
    NO_NODE,
    NONCE_BYTES,
    ClientProof,
    NodeCredentials,
    NodeRole,
    ProofRefused,
)
from ...protocol.session.node_secrets import Secrets
from ...protocol.settings.security_protocol import SecurityProtocol
from ...protocol.wire.codec import MalformedMessage
from ...protocol.wire.schema import Message, Request
from .layout import ClusterLayout, Member
from .ports import HOST
from .security import ClusterSecurity

if TYPE_CHECKING:
    import ssl

VERSION = 2
TIMEOUT_S = 1.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024

_ResponseT = TypeVar("_ResponseT", bound=Message)


def brokers_seen_by(layout: ClusterLayout, broker: Member) -> set[int]:
    """Return the ids of the unfenced brokers as this broker reports them.

    The set is empty if the broker does not answer, or if a process of another cluster answers at its port.
    """
    try:
        with _connected(layout, broker) as connection:
            _prove(connection, broker.id, layout)
            answer = _ask(connection, DescribeClusterRequest(), VERSION)
    except (OSError, MalformedMessage, ProofRefused):
        return set()
    return {broker.broker_id for broker in answer.brokers if not broker.is_fenced}


def _connected(layout: ClusterLayout, broker: Member) -> socket.socket:
    connection = socket.create_connection((HOST, layout.loopback_port(broker)), TIMEOUT_S)
    if layout.security is None or not layout.security.protocol.has_tls:
        return connection
    try:
        return _context(layout.security).wrap_socket(connection, server_hostname=HOST)
    except BaseException:
        connection.close()
        raise


@cache
def _context(security: ClusterSecurity) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(cafile=security.ca_file)
    if security.protocol is SecurityProtocol.SSL:
        context.load_cert_chain(security.certificate_file)
    return context


def _prove(connection: socket.socket, broker_id: int, layout: ClusterLayout) -> None:
    secrets, cluster_id = Secrets.parse(layout.secret_file.read_bytes()), layout.cluster_id
    incarnation = os.urandom(INCARNATION_BYTES)
    own = NodeCredentials.of(secrets, cluster_id, NO_NODE, incarnation, NodeRole.OPERATOR)
    proof = ClientProof(own, broker_id, os.urandom(NONCE_BYTES))
    message = proof.claim
    while not proof.done:
        answer = _ask(connection, AuthenticateNodeRequest(auth_bytes=message), 0)
        message = proof.receive(answer.auth_bytes)


def _ask(connection: socket.socket, request: Request[_ResponseT], version: int) -> _ResponseT:
    connection.sendall(encode_request(request, version, 0, "ottla-up"))
    size = int.from_bytes(_exactly(connection, 4), "big")
    if size > MAX_ANSWER_BYTES:
        raise MalformedMessage(f"an answer of {size} bytes")
    return decode_response(type(request), _exactly(connection, size), version)[1]


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(min(count, 65536))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
