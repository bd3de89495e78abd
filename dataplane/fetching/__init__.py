"""Fetches: the records read for a consumer, its session, and answers that are sent without waiting for a disk."""
