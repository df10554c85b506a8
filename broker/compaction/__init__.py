"""The worker that compacts the logs of a node."""
