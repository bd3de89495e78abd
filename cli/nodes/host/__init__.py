"""`ottla broker --processes N`: the brokers of one host, each in a process of its own, under one supervisor."""
