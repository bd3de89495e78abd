"""Compaction: of the records with the same key only the last stays.

What decides is pure: `choosing` (which log, from where to where), `offset_map` (the last offset of each key),
`keeping` (which batches and records stay), `transactions` (which data was aborted, which markers may go),
`rewriting` (bytes of a batch that lost records), `grouping` (which segments become one). `cleaning` applies it
to the files of one log, and `worker` is the process of its own in which that runs, told what to do by `job`
messages. The one rule: an offset that stays keeps its record, and no record goes before a newer one of its key
is in the log. The rules are those of Kafka's `LogCleaner`, KIP-58 (lag), KIP-354 (max lag) and KIP-534
(delete horizon).
"""
