"""Changes of transactions: abort of a transaction, and deletion of a transactional id."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

from ....client.admin import TransactionDescription
from ...area import BadQuestion, Change, Difference, Done, Form, FormField, Outdated, Visit
from ...commands import command
from ...formats import UNKNOWN, duration, link
from .listing import DECIDED, OPEN, open_for_s
from .transaction import described


async def abort_form(visit: Visit) -> Form:
    """Return the form that asks the user to repeat the transactional id whose transaction is aborted."""
    transaction = await described(visit.admin, visit.exact("id"))
    return Form(
        f"Abort the transaction of {transaction.transactional_id}",
        (_again("repeat the transactional id"),),
        "Its producer is fenced: it fails, and must start again.",
    )


async def _abortable(visit: Visit) -> TransactionDescription:
    """Return the open transaction of the id in the query.

    Raises BadQuestion if none is open, or if the form does not repeat the id.
    """
    transaction = await _confirmed(visit)
    if transaction.state != OPEN:
        raise BadQuestion(
            f"{transaction.transactional_id} has no open transaction: it is {transaction.state}"
        )
    return transaction


async def plan_abort(visit: Visit) -> Change:
    """Plan the abort of the open transaction of a transactional id."""
    transaction = await _abortable(visit)
    return Change(
        title=f"Abort the transaction of {transaction.transactional_id}",
        differences=[
            Difference("state", transaction.state, "CompleteAbort"),
            Difference("open for", duration(open_for_s(transaction, time.time())), None),
            Difference("partitions", f"{len(transaction.partitions):,}", None),
        ],
        carry_out=partial(_abort, transaction),
        command=command("txn", "abort", names=[transaction.transactional_id]),
        warning="What the transaction wrote is lost, and its producer is fenced.",
    )


async def _abort(shown: TransactionDescription, visit: Visit) -> Done:
    """Abort the transaction that was shown, even if it has more partitions by now.

    Raises VersionUnsupported on clusters other than Ottla.
    """
    name = shown.transactional_id
    now = await described(visit.admin, name)
    if now.state != OPEN:
        raise Outdated(f"the transaction of {name} has ended: {name} is {now.state}")
    if now.identity != shown.identity:
        raise Outdated(f"the transaction of {name} has ended, and another one is open")
    await visit.admin.abort_transaction(name)
    return Done(f"the transaction of {name} was aborted", link("/transactions/id", id=name))


async def deletion_form(visit: Visit) -> Form:
    """Return the form that asks the user to repeat the transactional id to delete."""
    transaction = await described(visit.admin, visit.exact("id"))
    return Form(
        f"Delete the transactional id {transaction.transactional_id}",
        (_again("repeat the transactional id"),),
        "Deletes the id with its application version. Stop its producers first.",
    )


async def _deletable(visit: Visit) -> TransactionDescription:
    """Return the description of the transactional id that a form deletes.

    Raises BadQuestion if its transaction has not ended, or if the form does not repeat the id.
    """
    transaction = await _confirmed(visit)
    if transaction.state in (OPEN, *DECIDED):
        raise BadQuestion(
            f"{transaction.transactional_id} is {transaction.state}: its transaction has to end first"
        )
    return transaction


async def plan_deletion(visit: Visit) -> Change:
    """Plan the deletion of a transactional id."""
    transaction = await _deletable(visit)
    version = UNKNOWN if transaction.app_version < 0 else str(transaction.app_version)
    return Change(
        title=f"Delete the transactional id {transaction.transactional_id}",
        differences=[
            Difference("transactional id", transaction.transactional_id, None),
            Difference("application version", version, None),
        ],
        carry_out=partial(_delete, transaction),
        command=command("txn", "delete", names=[transaction.transactional_id]),
        warning="A program that relies on the application version would start again. This cannot be undone.",
    )


async def _delete(shown: TransactionDescription, visit: Visit) -> Done:
    """Delete the transactional id.

    Raises Outdated if it was used since the preview, and VersionUnsupported on clusters other than Ottla.
    """
    name = shown.transactional_id
    now = await described(visit.admin, name)
    if replace(now, coordinator=shown.coordinator) != shown:
        raise Outdated(f"{name} was used again: it is {now.state}")
    await visit.admin.delete_transactional_id(name)
    return Done(f"the transactional id {name} was deleted", "/transactions")


def _again(label: str) -> FormField:
    return FormField(name="again", label=label, is_required=True)


async def _confirmed(visit: Visit) -> TransactionDescription:
    """Return the description of the transactional id in the query.

    Raises BadQuestion if the form does not repeat the id.
    """
    transaction = await described(visit.admin, visit.exact("id"))
    visit.confirm(transaction.transactional_id, "id")
    return transaction
