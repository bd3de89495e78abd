"""Consumers of share groups (KIP-932): records are taken, locked, and acknowledged one by one."""
