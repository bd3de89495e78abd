"""Connections to brokers, and the client's cached metadata of the cluster."""
