"""Settings of nodes and topics: names, values, sources."""
