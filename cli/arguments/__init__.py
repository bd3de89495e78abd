"""What is named on the command line: parsers, the arguments that several commands share, and how these are read."""
