"""How a broker shares one process: event loop, threads, heap, clocks and sockets."""
