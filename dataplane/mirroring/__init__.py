"""Mirroring: copies of topics of another cluster, the source. The leader of a copied partition fetches from the
partition's leader at the source, and appends the batches to its own log.
"""
