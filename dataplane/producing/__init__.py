"""Produced batches that cannot be appended in the turn of the loop in which they came."""
