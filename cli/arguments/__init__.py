"""Arguments of the command line: parsers, arguments that several commands share, and conversion of their values."""
