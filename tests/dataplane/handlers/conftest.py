"""Tests of this folder run on the event loop of brokers."""

from __future__ import annotations

from tests.dataplane.event_loop import event_loop_policy as event_loop_policy
