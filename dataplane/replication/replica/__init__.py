"""One replica: its log, its role, and the clients and brokers that wait for it."""
