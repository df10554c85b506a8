"""Durable bytes through an injected `Disk`: segments, lineage, journal, recovery, group commit."""
