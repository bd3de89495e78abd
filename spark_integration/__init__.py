"""Spark sources and sinks (to come: see docs/SUPPORT.md)."""
