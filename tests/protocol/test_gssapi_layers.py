"""The end of a login by Kerberos: no layer is offered, and no other taken (RFC 4752)."""

from __future__ import annotations

import pytest

from ottla.protocol.credentials.gssapi_layers import OFFER, LayersRefused, check_choice, chosen


def test_both_ends_agree_on_no_layer() -> None:
    assert bytes([1, 0, 0, 0]) == OFFER
    assert chosen(OFFER) == bytes([1, 0, 0, 0])
    assert check_choice(chosen(OFFER)) == ""
    assert check_choice(chosen(OFFER, "änn@R")) == "änn@R"


def test_a_client_takes_no_layer_of_a_server_that_offers_all() -> None:
    assert chosen(bytes([7, 1, 0, 0])) == bytes([1, 0, 0, 0])


@pytest.mark.parametrize(
    ("offer", "complaint"),
    [
        (b"", "an offer of layers of 0 bytes, it must have 4"),
        (bytes([1, 0, 0, 0, 0]), "of 5 bytes"),
        (bytes([6, 1, 0, 0]), "the offer 0x06 demands"),
        (bytes(4), "the offer 0x00 demands"),
    ],
)
def test_offers_that_a_client_does_not_take(offer: bytes, complaint: str) -> None:
    with pytest.raises(LayersRefused, match=complaint):
        chosen(offer)


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        (b"", "a choice of layers of 0 bytes, it must have at least 4"),
        (bytes([1, 0, 0]), "of 3 bytes"),
        (bytes([4, 0, 16, 0]), "the layer 0x04, offered is none"),
        (bytes(4), "the layer 0x00"),
        (bytes([1, 0, 0, 0, 0xFF]), "an authorization id that is not UTF-8"),
    ],
)
def test_choices_that_a_server_does_not_take(choice: bytes, complaint: str) -> None:
    with pytest.raises(LayersRefused, match=complaint):
        check_choice(choice)
