"""The settings of a broker: its file, and what may change while it runs."""
