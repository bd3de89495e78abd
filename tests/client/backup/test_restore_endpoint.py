"""The address at which brokers reach a restoration: its text, its socket, and the certificates of both sides."""

from __future__ import annotations

import socket
import ssl

import pytest

from ottla.client.admin.backups.restore_endpoint import endpoint_for, listen_address
from ottla.client.failures import BackupRefused


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("10.0.0.1", ("10.0.0.1", 0)),
        ("restorer.example:9092", ("restorer.example", 9092)),
        ("::1", ("::1", 0)),
        ("2001:db8::7", ("2001:db8::7", 0)),
        ("[2001:db8::7]", ("2001:db8::7", 0)),
        ("[2001:db8::7]:9092", ("2001:db8::7", 9092)),
    ],
)
def test_a_host_has_a_port_or_none(listen: str, address: tuple[str, int]) -> None:
    assert listen_address(listen) == address


@pytest.mark.parametrize("listen", ["", ":9092", "[]:1", "host:", "host:http", "host:65536", "host:-1"])
def test_other_texts_are_refused(listen: str) -> None:
    with pytest.raises(ValueError, match="listen is HOST or HOST:PORT, not "):
        listen_address(listen)


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_only_a_client_with_the_certificate_connects(host: str, shown: str) -> None:
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with endpoint_for((host, 0), "") as endpoint:
        assert endpoint.address == f"{shown}:{endpoint.port}"
        trusting = ssl.create_default_context(cadata=endpoint.options["ssl_cadata"])
        assert trusting.get_ca_certs()
        assert endpoint.tls.verify_mode is ssl.CERT_REQUIRED


def test_an_address_that_cannot_be_bound_is_named() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(
            BackupRefused, match=rf"the address 127.0.0.1:{taken.getsockname()[1]} .*Address already in use"
        ),
        endpoint_for(("127.0.0.1", taken.getsockname()[1]), ""),
    ):
        pass
