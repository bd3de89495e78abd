"""The area "Transactions": transactional ids with their transactions, hanging transactions, and the newest cut.

A cut is a commit index up to which every decided transaction has its markers in all topics.
"""

from __future__ import annotations

from ...area import Action, Area, View
from . import changes, hanging, listing, transaction

AREA = Area(
    name="transactions",
    title="Transactions",
    place=50,
    parts=(
        View(path="/transactions", show=listing.show, refresh_s=3.0),
        View(path="/transactions/id", show=transaction.show, refresh_s=2.0),
        View(path="/transactions/hanging", show=hanging.show),
        Action(
            path="/transactions/abort",
            form=changes.abort_form,
            plan=changes.plan_abort,
        ),
        Action(
            path="/transactions/forget",
            form=changes.deletion_form,
            plan=changes.plan_deletion,
        ),
    ),
)
