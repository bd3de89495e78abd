"""`ottla quorum` and `ottla broker`: one node in this process, its settings, its log lines and its HTTP endpoint."""
