"""Messages to operators about nodes that fail to establish TLS."""

from __future__ import annotations

import ssl

import pytest

from ottla.network.tls.handshake import is_sudden_end
from ottla.network.tls.nodes import CLOSED_EARLY, tls_problem


def error_of(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    "error", [ssl.SSLEOFError(8, "EOF occurred"), error_of("UNEXPECTED_EOF_WHILE_READING")]
)
def test_a_sudden_end_may_be_a_certificate_that_is_not_believed(error: ssl.SSLError) -> None:
    """Versions of Python report it differently."""
    assert is_sudden_end(error)
    assert tls_problem(error) == CLOSED_EARLY


def test_an_alert_is_told_as_that() -> None:
    alert = error_of("TLSV1_ALERT_UNKNOWN_CA")
    assert not is_sudden_end(alert)
    assert "refuses this node's certificate" in tls_problem(alert)
    assert not is_sudden_end(None)
    assert not is_sudden_end(ConnectionResetError())
