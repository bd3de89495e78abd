"""FindCoordinator (10): the broker that coordinates a group or transactional id."""

from __future__ import annotations

from typing import Final

from ..wire.schema import Message, Request, array, data, int8, int16, int32, request, response, string

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
"""Types of keys that brokers coordinate."""


@data()
class Coordinator(Message):
    """The broker that coordinates one key: a group id or a transactional id."""

    key: str = string("4+", about="Group or transactional id that was asked for.")
    node_id: int = int32("4+", about="Broker id.")
    host: str = string("4+", about="Host name or address.")
    port: int = int32("4+", about="TCP port.")
    error_code: int = int16("4+", about="Error code, 0 for success.")
    error_message: str | None = string(
        "4+", nullable="4+", ignorable=True, about="Explanation for people; null without one."
    )


@response(10, "0-6", flexible="3+")
class FindCoordinatorResponse(Message):
    """Answer to FindCoordinatorRequest."""

    throttle_time_ms: int = int32("1+", ignorable=True, about="How long a quota delayed the request, in ms.")
    error_code: int = int16("0-3", about="Error code, 0 for success.")
    error_message: str | None = string(
        "1-3", nullable="1-3", default=None, ignorable=True, about="Explanation for people; null without one."
    )
    node_id: int = int32("0-3", about="Broker id.")
    host: str = string("0-3", about="Host name or address.")
    port: int = int32("0-3", about="TCP port.")
    coordinators: list[Coordinator] = array(Coordinator, "4+", about="Coordinator of each key.")


@request(10, "0-6", flexible="3+", response=FindCoordinatorResponse)
class FindCoordinatorRequest(Request[FindCoordinatorResponse]):
    """Request for the brokers that coordinate keys (group ids or transactional ids); for several keys at once since
    version 4."""

    key: str = string("0-3", about="Group or transactional id to look up.")
    key_type: int = int8("1+", about="0 group, 1 transaction, 2 share group.")
    coordinator_keys: list[str] = array(string, "4+", about="Keys to look up.")
