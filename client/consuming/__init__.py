"""Records on their way to the reader: fetches and what they brought, and membership in groups."""
