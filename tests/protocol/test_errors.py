"""The error table against kio's."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from ottla.protocol.errors import ERRORS, ErrorCode, KafkaError


def test_codes_names_and_retriability_are_those_of_kafka() -> None:
    for theirs in KioErrorCode:
        ours = ErrorCode(int(theirs))
        assert ours.name == theirs.name.upper()
        assert ours.retriable == theirs.retriable, ours
        assert ERRORS[ours].message


def test_an_unknown_code_is_an_unknown_server_error() -> None:
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_error_explains_itself() -> None:
    assert KafkaError(ErrorCode.NOT_COORDINATOR).message == ErrorCode.NOT_COORDINATOR.message
    assert str(KafkaError(ErrorCode.INVALID_CONFIG, "x=1")) == "INVALID_CONFIG: x=1"


def test_codes_of_clients_are_never_on_the_wire() -> None:
    of_clients = [code for code in ErrorCode if code.is_of_client]
    assert ErrorCode.CLIENT_CLOSED in of_clients
    for code in of_clients:
        assert code < -1
        assert not code.retriable
        assert code not in ERRORS
        assert ErrorCode.of(code) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not ErrorCode.UNKNOWN_SERVER_ERROR.is_of_client
