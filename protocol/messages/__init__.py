"""Kafka messages declared as field tables, one file per API family."""
