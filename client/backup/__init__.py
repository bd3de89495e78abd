"""Backups of a cluster in an object store, and their restoration into a cluster.

`run` copies a cluster into a store, one consistent cut after the other; `cluster` reads the cluster, `copying` the
records of a partition, and `lease` keeps other backups away. `restore` serves a cut to the brokers of another cluster
as a source that they copy with a mirror; `serving` and `answers` are that source, and `loaded_segments` reads its
segments ahead. `verify` and `prune` read and clear a store. `names`, `cut_file`, `catalog`, `chains` and `plans`
decide, and are pure. docs/BACKUP.md has the layout of the store.
"""
