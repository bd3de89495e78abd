"""FindCoordinator (10): the broker that coordinates a group, a transactional id or a share-partition."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple

from ..wire.schema import Message, Request, array, data, int8, int16, int32, request, response, string

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
SHARE_KEY: Final = 2
"""Types of keys that brokers coordinate. Only brokers look up keys of the type SHARE_KEY (KIP-932)."""

_SHARE_KEY_FORM: Final = re.compile(r"(.+):([A-Za-z0-9_-]{22}):([0-9]{1,10})", re.ASCII | re.DOTALL)
_PARTITION_MAX: Final = 2**31 - 1


class SharePartition(NamedTuple):
    """A share-partition: a partition as seen by one share group. `topic_id` has 16 bytes."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def key(self) -> str:
        """The share-partition's key in FindCoordinator, `group:topicId:partition`, with the topic id in URL-safe base64
        without padding. A group id may contain colons."""
        topic_id = urlsafe_b64encode(self.topic_id).decode().rstrip("=")
        return f"{self.group_id}:{topic_id}:{self.partition}"

    @classmethod
    def of_key(cls, key: str) -> SharePartition:
        """Return the share-partition with this key in FindCoordinator. Raises ValueError for text in another form."""
        found = _SHARE_KEY_FORM.fullmatch(key)
        if found is None or int(found[3]) > _PARTITION_MAX:
            raise ValueError(
                f"{key[:100]!r} is no key of a share-partition: it must be groupId:topicId:partition"
            )
        return cls(found[1], urlsafe_b64decode(found[2] + "=="), int(found[3]))


@data()
class Coordinator(Message):
    """The broker that coordinates one key: a group id, a transactional id or a share-partition's key."""

    key: str = string("4+", about="Key that was asked for.")
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

    key: str = string("0-3", about="Key to look up.")
    key_type: int = int8("1+", about="0 group, 1 transaction, 2 share-partition.")
    coordinator_keys: list[str] = array(string, "4+", about="Keys to look up.")
