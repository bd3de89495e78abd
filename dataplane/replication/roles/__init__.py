"""Decisions of leaders and followers, without clock, socket or file."""
