"""The replicas on this broker: made, given a role, damaged, rebuilt, taken offline, removed."""
