"""Consensus groups and node-pair liveness as values: facts in, orders out. See README.md."""
