"""Refusals of names that do not exist: the text of the cluster's error, with the nearest existing name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..client.failures import restated
from ..protocol.errors import ErrorCode, KafkaError
from .arguments.selection import missing, name_missing
from .run_client import refusal

if TYPE_CHECKING:
    from ..client.admin import Admin

_MISSING = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "topic",
    ErrorCode.GROUP_ID_NOT_FOUND: "group",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "transactional id",
    ErrorCode.RESOURCE_NOT_FOUND: "mirror",
}


async def refuse_missing(admin: Admin, names: Sequence[str], kind: str) -> None:
    """Raise NameMissing with the nearest existing name if one of the names does not exist.

    `kind` is `topic`, `group`, `transactional id` or `mirror`. Nothing is known, and nothing refused, for a user who
    may not list them.
    """
    try:
        known = set(await _NAMES[kind](admin))
    except KafkaError:
        return
    for name in names:
        if name not in known:
            raise name_missing(name, known, kind)


async def refusal_of_names(admin: Admin, names: Sequence[str], error: KafkaError) -> str:
    """Return the text of a refusal that concerns one of these topics, groups, transactional ids or mirrors. If one does
    not exist, the text has the nearest existing name."""
    return refusal(await with_nearest_name(admin, names, error))


async def with_nearest_name(admin: Admin, names: Sequence[str], error: KafkaError) -> KafkaError:
    """Return an error of the cluster; if it says that one of the names does not exist, with the nearest existing name
    in its message."""
    kind = _MISSING.get(error.code)
    if kind is None:
        return error
    try:
        known = set(await _NAMES[kind](admin))
    except KafkaError:  # The user may not list names, and gets the error alone.
        return error
    absent = next((name for name in names if name not in known), names[0])
    return restated(
        error, missing(absent, known, kind, admin.session.cluster.user if kind == "topic" else None)
    )


async def _topics(admin: Admin) -> Iterable[str]:
    return [topic.name for topic in await admin.describe_topics()]


async def _groups(admin: Admin) -> Iterable[str]:
    return [group.group_id for group in await admin.list_groups()]


async def _transactional_ids(admin: Admin) -> Iterable[str]:
    return [listing.transactional_id for listing in await admin.list_transactions()]


async def _mirrors(admin: Admin) -> Iterable[str]:
    return [mirror.name for mirror in await admin.describe_mirrors()]


_NAMES: dict[str, Callable[[Admin], Awaitable[Iterable[str]]]] = {
    "topic": _topics,
    "group": _groups,
    "transactional id": _transactional_ids,
    "mirror": _mirrors,
}
