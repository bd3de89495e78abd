"""Membership in a group, by either protocol: the assignment of partitions to members, and their handover."""
