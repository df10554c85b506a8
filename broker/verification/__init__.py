"""Whether the replicas of a partition say the same."""
