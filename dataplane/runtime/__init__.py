"""Shared use of one process by all parts of a broker: event loop, threads, heap, clocks and sockets."""
