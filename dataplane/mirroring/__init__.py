"""Mirroring of topics of another cluster. The leader of a copy fetches from the partition's leader at the source, and
appends the batches to its own log."""
