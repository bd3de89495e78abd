"""Security: who may do what, users, certificates, and quotas with what may be changed of them."""

from __future__ import annotations

from ...area import Action, Area, View
from . import page, quotas

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
    ),
)
