"""The area "Security": permissions, certificates, and changes of users and quotas."""

from __future__ import annotations

from ...area import Action, Area, View
from . import page, quotas, users

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
        Action(path="/access/users/create", form=users.creation_form, plan=users.plan_creation),
        Action(path="/access/users/password", form=users.password_form, plan=users.plan_password),
        Action(path="/access/users/delete", form=users.deletion_form, plan=users.plan_deletion),
    ),
)
