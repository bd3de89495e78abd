"""A login goes on while other clients of its address connect repeatedly and stay silent."""

from __future__ import annotations

import asyncio

from ottla.protocol.credentials.scram import SCRAM_SHA_256, ScramClient
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.sasl import SaslHandshakeRequest
from tests.dataplane.server.conftest import until
from tests.dataplane.server.test_authentication import connect, server

FLOOD = 120
"""Number of connections that exceeds the limit of an address."""


async def test_a_login_is_not_pushed_out_by_peers_that_only_connect() -> None:
    async with server(timeout_ms=600_000) as broker:

        async def flooded() -> None:
            """Connect so often that all places of the address were taken, and given to others."""
            accepted = broker._accepted + FLOOD
            peers = [await connect(broker) for _ in range(FLOOD)]
            await until(lambda: broker._accepted >= accepted)
            flood.extend(peers)

        flood = []  # type: ignore[var-annotated]
        peer = await connect(broker)
        assert (await peer.ask(ApiVersionsRequest(), 3)).error_code == ErrorCode.NONE
        await flooded()
        assert (await peer.handshake("SCRAM-SHA-256")).error_code == ErrorCode.NONE
        await flooded()
        client = ScramClient(SCRAM_SHA_256, "ann", "secret", "nonce")
        challenge = await peer.authenticate(client.first())
        await flooded()
        final = await peer.authenticate(client.final(challenge.auth_bytes))
        client.check(final.auth_bytes)
        await flooded()
        assert await peer.who() == "User:ann"


async def test_peers_that_choose_a_mechanism_and_go_no_further_keep_nobody_out() -> None:
    async with server(timeout_ms=600_000) as broker:
        silent = []
        for _ in range(60):
            stranger = await connect(broker)
            stranger.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            silent.append(stranger)
        await asyncio.sleep(0)
        for _ in range(20):
            peer = await connect(broker)
            assert (await peer.log_in()).error_code == ErrorCode.NONE
            assert await peer.who() == "User:ann"
