"""The ottla command."""
