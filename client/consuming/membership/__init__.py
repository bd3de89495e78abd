"""Membership in a group, by either protocol: which partitions are this member's, and how they change hands."""
