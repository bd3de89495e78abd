"""A worker: records go to a handler, in parallel by key, with retries and dead letters, at least or exactly once.

`tasks` decides, as a pure state to which time is an argument. `lanes` and `rates` choose the record that may start.
`arrivals` has the records without tasks: those to come, and those whose handlers wait for nothing. `runners` await
handlers for `dispatch`, which carries out the decisions.
`watermark` and `commit_metadata` have the offsets that count. `retries`, `letters` and `retry_notes` have the fate of a
failure. `worker` is the shell: `intake` reads and hands partitions over, `handlers` calls the program, `at_least_once`
or `exactly_once` settles results. The single rule: an offset counts only once all results of its record are in the
cluster for good.
"""
