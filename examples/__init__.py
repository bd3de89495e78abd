"""Programs to learn from: each shows how to build something on Ottla, and is a test of what it is built on."""
