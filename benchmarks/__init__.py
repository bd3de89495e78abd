"""Programs that measure Ottla, and the demo: real processes, real clients, recorded results."""
