"""What several tests of the client begin with."""

from __future__ import annotations

import pytest

from tests.client.fake_coordinator import Coordinator


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """The only broker that a consumer made in the test meets."""
    made = Coordinator()
    monkeypatch.setattr("ottla.client.consuming.options.ConsumerConnection.cluster", lambda *_: made)
    return made
