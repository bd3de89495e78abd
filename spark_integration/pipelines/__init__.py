"""Pipelines: a topic, steps, and what comes of them in a topic and a table, exactly once, as a YAML file describes it.

`settings` reads the description, `steps` finds the function that makes results of records, `sinks` writes each
micro-batch to all its destinations, `running` starts the query, tells of its progress and ends it, `session` and `java`
find what Spark runs on. `flight_delays` is the pipeline of the demo, and the template to begin with.

One rule: a pipeline is one query with one checkpoint. Its sinks take a micro-batch by the number that the checkpoint
has for it, each of them once; so what is in all of them is the same after any crash.
"""
