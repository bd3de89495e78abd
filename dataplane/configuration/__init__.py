"""The configuration of a broker: its file, read once, and the topic settings derived from it."""
