"""What may be done to transactions: one aborted, and a transactional id deleted."""

from __future__ import annotations

import shlex
import time

from ....client.admin import TransactionDescription
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Visit
from ...formats import UNKNOWN, duration, link
from .listing import DECIDED, OPEN, open_for_s
from .transaction import described


async def abort_form(visit: Visit) -> Form:
    """Its name once more."""
    told = await described(visit)
    return Form(
        f"Abort the transaction of {told.transactional_id}",
        (_again("the transactional id once more"),),
        "Its producer is fenced: it fails, and has to begin anew.",
    )


async def _abortable(visit: Visit) -> TransactionDescription:
    """Raises BadQuestion where nothing is open, or the form names another one."""
    told = await _confirmed(visit)
    if told.state != OPEN:
        raise BadQuestion(f"{told.transactional_id} has no open transaction: it is {told.state}")
    return told


async def plan_abort(visit: Visit) -> Change:
    """What goes."""
    told = await _abortable(visit)
    return Change(
        title=f"Abort the transaction of {told.transactional_id}",
        differences=[
            Difference("state", told.state, "CompleteAbort"),
            Difference("open for", duration(open_for_s(told, time.time())), None),
            Difference("partitions", f"{len(told.partitions):,}", None),
        ],
        command=shlex.join(["ottla", "txn", "abort", told.transactional_id]),
        warning="What the transaction wrote is lost, and its producer is fenced.",
    )


async def abort(visit: Visit) -> Done:
    """Abort it. Raises VersionUnsupported of clusters that are not of Ottla."""
    told = await _abortable(visit)
    await visit.admin.abort_transaction(told.transactional_id)
    return Done(
        f"the transaction of {told.transactional_id} was aborted",
        link("/transactions/id", id=told.transactional_id),
    )


async def deletion_form(visit: Visit) -> Form:
    """Its name once more."""
    told = await described(visit)
    return Form(
        f"Delete the transactional id {told.transactional_id}",
        (_again("the transactional id once more"),),
        "Deletes it with its application version, as if it had never been. Stop its producers first.",
    )


async def _deletable(visit: Visit) -> TransactionDescription:
    """Raises BadQuestion where a transaction has not ended, or the form names another one."""
    told = await _confirmed(visit)
    if told.state in (OPEN, *DECIDED):
        raise BadQuestion(f"{told.transactional_id} is {told.state}: its transaction has to end first")
    return told


async def plan_deletion(visit: Visit) -> Change:
    """What goes."""
    told = await _deletable(visit)
    version = UNKNOWN if told.app_version < 0 else str(told.app_version)
    return Change(
        title=f"Delete the transactional id {told.transactional_id}",
        differences=[
            Difference("transactional id", told.transactional_id, None),
            Difference("application version", version, None),
        ],
        command=shlex.join(["ottla", "txn", "delete", told.transactional_id]),
        warning="A program that goes by its application version would begin anew. This cannot be undone.",
    )


async def delete(visit: Visit) -> Done:
    """Delete it. Raises VersionUnsupported of clusters that are not of Ottla."""
    told = await _deletable(visit)
    await visit.admin.delete_transactional_id(told.transactional_id)
    return Done(f"the transactional id {told.transactional_id} was deleted", "/transactions")


def _again(label: str) -> FormField:
    return FormField(name="again", label=label, is_required=True)


async def _confirmed(visit: Visit) -> TransactionDescription:
    """Raises BadQuestion where the form names another one."""
    told = await described(visit)
    visit.confirm(told.transactional_id, "id")
    return told
