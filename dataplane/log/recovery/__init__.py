"""The opening of a log's folder, and repairs after a crash."""
