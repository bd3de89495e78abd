"""The version of this package, which its client sends to brokers (KIP-511)."""

__version__ = "0.1.0"
