"""The settings in force, as clients are shown them: values, their sources, log levels."""
