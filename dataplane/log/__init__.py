"""Partition logs on disk, in Kafka layout."""
