"""Conversations with a broker about a share group, and the answers of Apache Kafka 4.4.0.

`scripts` has the requests, `playing` sends them to any broker, and `kafka.json` has Kafka's answers.
"""
