"""Compaction: of all records with the same key only the last one stays.

The deciding modules are pure. `offset_map` has the last offset of each key, `keeping` chooses the batches and records
that stay, `transactions` finds aborted data and markers that may be removed, `rewriting` makes the bytes of a batch
that lost records, and `grouping` joins small segments. `cleaning` applies them to the files of one log. `worker` is the
dedicated process in which this runs, controlled by `job` messages.

One rule holds: an offset that stays keeps its record, and no record is removed before a newer record of its key is in
the log. The rules are those of Kafka's `LogCleaner`, KIP-58 (lag), KIP-354 (max lag) and KIP-534 (delete horizon).
"""
