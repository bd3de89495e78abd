"""Requests of share groups' members for records: the code that is loaded with the first of them."""
