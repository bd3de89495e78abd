"""Example programs. Each shows how to build a system on Ottla, and tests the features that it uses."""
