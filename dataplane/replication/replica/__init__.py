"""One replica: its log, its role, and everyone who waits for it."""
