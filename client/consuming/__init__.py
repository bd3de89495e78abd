"""Records on their way to the reader: fetches and what they brought, positions, offsets and their commits."""
