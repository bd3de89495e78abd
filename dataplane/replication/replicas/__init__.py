"""All replicas of this broker: made, given a role, damaged, rebuilt, moved, taken offline, removed."""
