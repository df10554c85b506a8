"""The runtime of every coordinator."""
