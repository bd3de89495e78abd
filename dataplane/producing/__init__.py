"""Produced batches that are not appended at once: threads validate them first, or they wait for their transaction."""
