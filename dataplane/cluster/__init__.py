"""The cluster as this broker's image shows it to clients, and the topics that are created on demand."""
