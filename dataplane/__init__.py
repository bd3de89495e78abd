"""The broker: log, replication, groups, server."""
