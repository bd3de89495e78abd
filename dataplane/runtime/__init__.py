"""How a broker shares one event loop, a few threads and one heap among all its work."""
