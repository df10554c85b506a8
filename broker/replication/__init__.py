"""Partitions at work: replicas, what they say to each other, who waits on them, who is alive."""
