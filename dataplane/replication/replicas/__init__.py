"""All replicas of this broker: their creation, roles, damage, rebuilding, moves, failure and removal."""
