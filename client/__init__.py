"""Connections, metadata, producer, consumer and admin for any Kafka-protocol cluster."""
