"""The area "Security": permissions, users, certificates, and quotas, which can be changed."""

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
