"""Backups of a cluster by the admin client, and the restoration of their cuts into a cluster.

`run` copies a cluster into a store, one consistent cut after the other: `cluster` reads the cluster, and `copying` the
records of a partition. `restore` serves a cut to the brokers of a cluster as a source that they copy with a mirror, at
the address of `restore_endpoint`. `calls` has the calls of the admin client that both use. `backup_admin` has the
methods for programs, and `backup` the run that one of them returns.
"""
