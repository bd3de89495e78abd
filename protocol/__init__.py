"""Wire formats: the layout and meaning of bytes. The package uses no sockets, no clock and no asyncio."""
