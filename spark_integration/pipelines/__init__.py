"""Pipelines that a YAML file describes: a topic, steps, and exactly-once results in a topic and a table.

`settings` reads the description. `steps` finds the function that turns records into results. `sinks` writes each
micro-batch to all its destinations. `running` starts the query, reports its progress and ends it. `session` and `java`
find the programs that Spark runs on. `flight_delays` is the pipeline of the demo, and a template.

One rule: a pipeline is one query with one checkpoint. Each sink accepts a micro-batch once, by its number in the
checkpoint, so all sinks have the same content after any crash.
"""
