"""What a replica decides in each role, without clock, socket or file."""
