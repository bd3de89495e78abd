"""Transactional ids that brokers use themselves, and that clients may not use."""

from __future__ import annotations

from typing import Final

LETTERS_PREFIX: Final = "__share_dead_letters-"
"""Beginning of the transactional ids with which leaders write dead letters of share groups."""
