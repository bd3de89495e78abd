"""Wire formats: what bytes mean. No sockets, no clock, no asyncio."""
