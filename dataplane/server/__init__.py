"""Sockets, request routing, purgatory, and one handler module per API family."""
