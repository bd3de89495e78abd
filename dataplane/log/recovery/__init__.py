"""Opening the folder of a log, and mending what a crash left there."""
