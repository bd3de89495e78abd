"""An outbox: rows written with a business transaction reach a topic once and in order, and are applied once.

`database` has the tables, for SQLite and PostgreSQL. `relay` sends the rows of the outbox to a topic, and `reader`
applies the records of the topic to another database. The single rule: a position is stored in the system that gets the
data, in the same transaction as the data.
"""
