"""The HTTP endpoint of a node, for whoever runs it."""
