"""The area "Brokers": data folders, replicas and settings of brokers, and changes of folders and settings."""

from __future__ import annotations

from ...area import Action, Area, View
from . import changes, page

AREA = Area(
    name="brokers",
    title="Brokers",
    place=15,
    parts=(
        View(path="/brokers", show=page.show, refresh_s=10.0),
        View(path="/brokers/broker", show=page.show_one, refresh_s=10.0),
        Action(
            path="/brokers/alter",
            form=changes.settings_form,
            plan=changes.plan_settings,
        ),
        Action(
            path="/brokers/cordon",
            form=changes.folders_form,
            plan=changes.plan_cordon,
        ),
    ),
)
