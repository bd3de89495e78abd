"""Copies of topics of another cluster: the leader of a partition here reads from its leader there, and appends."""
