"""Logs that coordinators keep their state in: partitions of internal topics, which their leader replays and writes."""
