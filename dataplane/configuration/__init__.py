"""The configuration of a broker: its file, read once, and the settings of topics that follow from it."""
