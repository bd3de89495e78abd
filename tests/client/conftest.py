"""Fixtures that several tests of the client share."""

from __future__ import annotations

import pytest

from tests.client.fake_coordinator import Coordinator


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """Return the only broker of a consumer made in the test."""
    made = Coordinator()
    monkeypatch.setattr("ottla.client.consuming.options.ConsumerConnection.cluster", lambda *_: made)
    return made
