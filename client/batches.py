"""Turns a queued batch into the bytes that travel."""

from __future__ import annotations
