"""Backups in an object store: their layout, and what needs the store alone.

`lease` keeps a second backup away, `reading` lists cuts, and `verify` and `prune` read and clear a store. `serving` and
`answers` serve a cut as a source that brokers copy with a mirror, and `loaded_segments` reads its segments ahead.
`names`, `cut_file`, `catalog`, `chains` and `plans` decide, and are pure. `values` are for programs. The admin client
copies a cluster into a store, and restores cuts: `client/admin/backups`. docs/BACKUP.md has the layout of the store.
"""
