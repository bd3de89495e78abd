"""Connections between the nodes of a cluster: mutual proof, handshake, encrypted frames, heartbeats over UDP."""
