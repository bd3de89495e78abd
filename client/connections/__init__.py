"""Connections to brokers, and what the client knows of the cluster behind them."""
