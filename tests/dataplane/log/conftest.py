"""Kafka's tools read what the log writes."""

from __future__ import annotations

from tests.java import tools as tools
