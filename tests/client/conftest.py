"""Fixtures that several tests of the client share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.client.fake_coordinator import Coordinator


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """Return the only broker of a consumer made in the test."""
    made = Coordinator()
    monkeypatch.setattr("ottla.client.consuming.options.ConsumerConnection.cluster", lambda *_: made)
    return made


@cache
def _provider() -> TracerProvider:
    """Set the provider of the process, which OpenTelemetry allows once."""
    provider = TracerProvider()
    trace.set_tracer_provider(provider)
    return provider


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    """Return the place where spans of the test are kept."""
    exporter = InMemorySpanExporter()
    _provider().add_span_processor(SimpleSpanProcessor(exporter))
    yield exporter
    exporter.shutdown()
