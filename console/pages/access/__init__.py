"""The area "Security": permissions, certificates, and changes of ACLs, users and quotas."""

from __future__ import annotations

from ...area import Action, Area, View
from . import acls, page, quotas, users

AREA = Area(
    name="access",
    title="Security",
    place=70,
    parts=(
        View(path="/access", show=page.show),
        Action(
            path="/access/quotas/new",
            form=quotas.new_form,
            plan=quotas.plan_new,
        ),
        Action(
            path="/access/quotas/alter",
            form=quotas.altering_form,
            plan=quotas.plan_altering,
        ),
        Action(path="/access/acls/create", form=acls.creation_form, plan=acls.plan_creation),
        Action(path="/access/acls/delete", form=acls.deletion_form, plan=acls.plan_deletion),
        Action(path="/access/users/create", form=users.creation_form, plan=users.plan_creation),
        Action(path="/access/users/password", form=users.password_form, plan=users.plan_password),
        Action(path="/access/users/delete", form=users.deletion_form, plan=users.plan_deletion),
    ),
)
