"""Options by which brokers reach the source of a mirror: what is taken, and what is a secret."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ottla.cli.nodes import mirror_sources
from ottla.cli.nodes.mirror_sources import ClientSources
from ottla.client.foreign_names import is_secret
from ottla.client.security.options import SecurityOptions
from ottla.protocol.errors import ErrorCode, KafkaError


def test_what_is_a_secret_for_clients_is_one_for_brokers() -> None:
    """Brokers know the names without loading the client."""
    texts = {one.name for one in fields(SecurityOptions)}.difference(mirror_sources.FOR_PROGRAMS)
    assert ClientSources.secrets == set(filter(is_secret, texts))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"security_protocl": "SSL"}, "did you mean 'security_protocol'"),
        ({"ssl_context": "x"}, "no option 'ssl_context'"),
        (
            {"security_protocol": "SSL", "ssl_check_hostname": "perhaps"},
            "ssl_check_hostname is true or false",
        ),
        ({"sasl_mechanism": "PLAIN"}, "needs security_protocol"),
    ],
)
async def test_options_that_cannot_be_are_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(KafkaError, match=said) as refusal:
        ClientSources().open("localhost:9092", options)
    assert refusal.value.code is ErrorCode.INVALID_REQUEST


async def test_bootstrap_servers_that_cannot_be_are_refused() -> None:
    with pytest.raises(KafkaError, match="no bootstrap server"):
        ClientSources().open("localhost:no", {})
