"""The effective settings that clients get: values, their sources, log levels."""
