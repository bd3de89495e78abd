"""Raft, the replicated cluster state, the controller and the metadata feed."""
