"""Everything that waits: sockets, handlers, replication, metadata, command line. See README.md."""
