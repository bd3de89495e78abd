"""Arguments of the command line: parsers, options that several commands share, and conversion of values."""
