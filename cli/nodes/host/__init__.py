"""`ottla broker --processes N`: the brokers of one host, each in a separate process, under one supervisor."""
